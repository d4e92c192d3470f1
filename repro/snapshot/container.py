"""The container by the Docker API: how it was made, what became of it, and whether its tag still means its image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from repro.domain.fingerprint import Fact
from repro.errors import MissingProgram
from repro.machine.containers import argv_of, environment_of, unix_time
from repro.machine.docker_port import Docker, NoSuchObject
from repro.machine.subprocesses import run
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context, attempt

_TOOLKIT = ("nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime")
_TOOL_S = 3.0
_RARELY_SET = ("CpusetCpus", "CpusetMems", "NanoCpus", "CpuQuota", "PidsLimit", "OomKillDisable")


class ContainerCollector:
    """`toolkit` tells the version line of a program of NVIDIA's container toolkit, None where it is not installed."""

    name = "container"
    deadline = 15.0
    fields = (
        "id",
        "name",
        "docker",
        "runtime",
        "toolkit",
        "image",
        "image_id",
        "repo_digests",
        "labels",
        "tag_now",
        "argv",
        "entrypoint",
        "command",
        "environment",
        "mounts",
        "limits",
        "gpus",
        "devices",
        "network",
        "state",
        "restarted",
        "log_driver",
    )

    def __init__(self, toolkit: Callable[[str], str | None] | None = None) -> None:
        self._toolkit = toolkit or _version_line

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """Sizes in bytes, times in Unix seconds. Without a container the daemon's own facts are kept."""
        docker = context.docker
        facts = dict.fromkeys(self.fields, Fact.unavailable(context.container_hint))
        if docker is not None:
            facts |= self._daemon(docker, context.container)
        if context.container is not None:
            facts |= _made(context.container, context.redactor)
            facts |= _became(context.container, context.redactor)
            facts |= _image(docker, context.container, context.redactor)
        return facts

    def _daemon(self, docker: Docker, container: Mapping[str, Any] | None) -> Mapping[str, Fact]:
        told = attempt(docker.daemon)
        if not told.known:
            return dict.fromkeys(("docker", "runtime"), told)
        version, info = told.value["version"], told.value["info"]
        host = (container or {}).get("HostConfig") or {}
        tools = {name: line for name in _TOOLKIT if (line := self._toolkit(name))}
        return {
            "docker": Fact.measured(_components(version)),
            "runtime": Fact.measured(
                {
                    "used": host.get("Runtime") or info.get("DefaultRuntime"),
                    "default": info.get("DefaultRuntime"),
                    "known": sorted(info.get("Runtimes") or {}),
                    "storage": info.get("Driver"),
                    "cgroup": {"driver": info.get("CgroupDriver"), "version": info.get("CgroupVersion")},
                }
            ),
            "toolkit": Fact.measured(tools, f"{', '.join(_TOOLKIT)} on this host"),
        }


def _components(version: Mapping[str, Any]) -> dict[str, str]:
    """Versions by lower-case name: engine, containerd, runc, docker-init."""
    parts = version.get("Components") or [{"Name": "engine", "Version": version.get("Version", "")}]
    return {str(part["Name"]).lower(): str(part["Version"]) for part in parts}


def _version_line(program: str) -> str | None:
    try:
        done = run([program, "--version"], _TOOL_S)
    except MissingProgram:
        return None
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0].strip() if done.succeeded and lines else None


def _made(facts: Mapping[str, Any], redactor: Redactor) -> Mapping[str, Fact]:
    """What `docker run` asked for."""
    config, host = facts["Config"], facts.get("HostConfig") or {}
    entrypoint, command = config.get("Entrypoint") or [], config.get("Cmd") or []
    return {
        "id": Fact.measured(facts["Id"]),
        "name": Fact.measured(str(facts.get("Name", "")).lstrip("/")),
        "argv": Fact.measured(list(redactor.argv(argv_of(facts)))),
        "entrypoint": Fact.measured(list(redactor.argv([entrypoint] if isinstance(entrypoint, str) else entrypoint))),
        "command": Fact.measured(list(redactor.argv(command))),
        "environment": Fact.measured(redactor.environment(environment_of(facts))),
        "mounts": Fact.measured(_mounts(facts, redactor)),
        "limits": Fact.measured(_limits(host)),
        "gpus": Fact.measured([_gpu_request(asked) for asked in host.get("DeviceRequests") or ()]),
        "devices": Fact.measured([d.get("PathOnHost") for d in host.get("Devices") or ()]),
        "network": Fact.measured(
            {
                "mode": host.get("NetworkMode"),
                "ports": dict(host.get("PortBindings") or {}),
                "extra_hosts": host.get("ExtraHosts") or [],
            }
        ),
        "log_driver": Fact.measured((host.get("LogConfig") or {}).get("Type")),
    }


def _mounts(facts: Mapping[str, Any], redactor: Redactor) -> list[dict[str, Any]]:
    """By destination: the daemon tells them in another order each time."""
    shown = [
        {
            "type": mount.get("Type"),
            "source": redactor.text(str(mount.get("Source", ""))),
            "destination": str(mount.get("Destination", "")),
            "writable": mount.get("RW"),
        }
        for mount in facts.get("Mounts") or ()
    ]
    return sorted(shown, key=lambda mount: str(mount["destination"]))


def _limits(host: Mapping[str, Any]) -> dict[str, Any]:
    """Memory and shared memory in bytes, None for no limit; only what was set of the others."""
    limits: dict[str, Any] = {
        "memory": host.get("Memory") or None,
        "memory_swap": host.get("MemorySwap") or None,
        "shm_size": host.get("ShmSize"),
        "ipc": host.get("IpcMode"),
        "pid": host.get("PidMode") or None,
        "ulimits": {u["Name"]: [u["Soft"], u["Hard"]] for u in host.get("Ulimits") or ()},
        "privileged": bool(host.get("Privileged")),
        "read_only": bool(host.get("ReadonlyRootfs")),
        "cap_add": host.get("CapAdd") or [],
        "restart": (host.get("RestartPolicy") or {}).get("Name"),
        "auto_remove": bool(host.get("AutoRemove")),
    }
    return {**limits, **{name: host[name] for name in _RARELY_SET if host.get(name)}}


def _gpu_request(asked: Mapping[str, Any]) -> dict[str, Any]:
    """`count` -1 stands for all GPUs."""
    return {
        "driver": asked.get("Driver") or None,
        "count": asked.get("Count"),
        "ids": asked.get("DeviceIDs") or [],
        "capabilities": asked.get("Capabilities") or [],
    }


def _became(facts: Mapping[str, Any], redactor: Redactor) -> Mapping[str, Fact]:
    state = facts["State"]
    started = unix_time(state.get("StartedAt"))
    shown = {
        "status": state.get("Status"),
        "running": bool(state.get("Running")),
        "exit_code": None if state.get("Running") else state.get("ExitCode"),
        "oom_killed": bool(state.get("OOMKilled")),
        "error": redactor.text(str(state.get("Error") or "")) or None,
        "restart_count": facts.get("RestartCount", 0),
        "created": unix_time(facts.get("Created")),
        "started": started,
        "finished": unix_time(state.get("FinishedAt")),
        "health": (state.get("Health") or {}).get("Status"),
    }
    return {"state": Fact.measured(shown), "restarted": Fact.measured(restarted(facts))}


def restarted(facts: Mapping[str, Any]) -> str | None:
    """A sentence for a container that was started more than once, None for one that was not."""
    count = int(facts.get("RestartCount") or 0)
    if count:
        return f"Docker has restarted it {count} times; its log holds all launches one after the other"
    finished, started = unix_time(facts["State"].get("FinishedAt")), unix_time(facts["State"].get("StartedAt"))
    if facts["State"].get("Running") and finished is not None and started is not None and started > finished:
        return "it was started again by hand after it had ended; its log holds all launches one after the other"
    return None


def _image(docker: Docker | None, facts: Mapping[str, Any], redactor: Redactor) -> Mapping[str, Fact]:
    """`tag_now`: {reference, image_id, same}; `same` False means the tag was moved after the container was made."""
    reference, image_id = str(facts["Config"].get("Image", "")), str(facts.get("Image", ""))
    known = {"image": Fact.measured(redactor.text(reference)), "image_id": Fact.measured(image_id)}
    if docker is None:
        return known
    image = attempt(lambda: docker.image(image_id))
    if image.known:
        known["repo_digests"] = Fact.measured(list(image.value.get("RepoDigests") or ()))
        known["labels"] = Fact.measured(redactor.json((image.value.get("Config") or {}).get("Labels") or {}))
    else:
        known |= dict.fromkeys(("repo_digests", "labels"), image)
    known["tag_now"] = attempt(lambda: _tag_now(docker, reference, image_id))
    return known


def _tag_now(docker: Docker, reference: str, image_id: str) -> dict[str, Any]:
    if reference.startswith("sha256:") or image_id.removeprefix("sha256:").startswith(reference):
        raise LookupError("the container was made from an image id, not from a tag")
    try:
        now = str(docker.image(reference)["Id"])
    except NoSuchObject:
        return {"reference": reference, "image_id": None, "same": False}
    return {"reference": reference, "image_id": now, "same": now == image_id}
