"""A Docker daemon in memory: containers and images as `docker inspect` shows them, logs, events, programs.

It is held to the same contract as the real one (tests/integration/test_snapshot_docker_port.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from repro.errors import DockerUnavailable
from repro.machine.docker_port import Aside, NoSuchObject, Ran

VERSION = {
    "Version": "28.1.1",
    "Components": [
        {"Name": "Engine", "Version": "28.1.1"},
        {"Name": "containerd", "Version": "1.7.27"},
        {"Name": "runc", "Version": "1.2.5"},
    ],
}
INFO = {
    "DefaultRuntime": "runc",
    "Runtimes": {"runc": {}, "nvidia": {}},
    "Driver": "overlay2",
    "CgroupDriver": "systemd",
    "CgroupVersion": "2",
}
Program = Callable[[Sequence[str]], Ran]


def image_facts(id: str, *tags: str, **labels: str) -> dict[str, Any]:
    return {"Id": id, "RepoTags": list(tags), "RepoDigests": [], "Config": {"Labels": labels or None}}


def container_facts(
    id: str,
    name: str,
    argv: Sequence[str],
    image: str = "vllm/vllm-openai:v0.29.0",
    image_id: str = "sha256:" + "a" * 64,
    environment: Mapping[str, str] | None = None,
    **state: Any,
) -> dict[str, Any]:
    """An inspected container that runs, unless `state` says otherwise."""
    return {
        "Id": id,
        "Name": f"/{name}",
        "Created": "2026-12-01T10:00:00.000000000Z",
        "Path": argv[0],
        "Args": list(argv[1:]),
        "Image": image_id,
        "RestartCount": state.pop("RestartCount", 0),
        "State": {
            "Status": "running",
            "Running": True,
            "OOMKilled": False,
            "Pid": 0,
            "ExitCode": 0,
            "Error": "",
            "StartedAt": "2026-12-01T10:00:01.250000000Z",
            "FinishedAt": "0001-01-01T00:00:00Z",
            **state,
        },
        "Config": {
            "Image": image,
            "Env": [f"{k}={v}" for k, v in (environment or {}).items()],
            "Entrypoint": list(argv[:2]),
            "Cmd": list(argv[2:]),
            "Labels": {},
        },
        "HostConfig": {
            "Runtime": "runc",
            "Memory": 0,
            "ShmSize": 64 << 20,
            "IpcMode": "private",
            "NetworkMode": "default",
            "LogConfig": {"Type": "json-file"},
            "RestartPolicy": {"Name": "no"},
            "Ulimits": None,
            "Devices": [],
            "DeviceRequests": None,
            "PortBindings": {},
        },
        "Mounts": [],
        "NetworkSettings": {"Ports": {}, "Networks": {}},
    }


class FakeDocker:
    """`down`: the daemon does not answer. `asides` keeps what throw-away containers were asked."""

    def __init__(
        self,
        containers: Sequence[Mapping[str, Any]] = (),
        images: Sequence[Mapping[str, Any]] = (),
        logs: Mapping[str, bytes] | None = None,
        events: Sequence[Mapping[str, Any]] = (),
        program: Program | None = None,
    ) -> None:
        self.down = False
        self.asides: list[Aside] = []
        self._containers = [dict(each) for each in containers]
        self._images = [dict(each) for each in images]
        self._logs = dict(logs or {})
        self._events = list(events)
        self._program: Program = program or (lambda _: Ran(0, ""))

    def daemon(self) -> Mapping[str, Any]:
        self._answer()
        return {"version": deepcopy(VERSION), "info": deepcopy(INFO)}

    def listed(self) -> Sequence[Mapping[str, Any]]:
        self._answer()
        return [
            {
                "Id": c["Id"],
                "Names": [c["Name"]],
                "Image": c["Config"]["Image"],
                "State": c["State"]["Status"],
                "Labels": c["Config"]["Labels"],
            }
            for c in self._containers
        ]

    def container(self, name: str) -> Mapping[str, Any]:
        self._answer()
        for facts in self._containers:
            if facts["Name"] == f"/{name}" or facts["Id"].startswith(name):
                return deepcopy(facts)
        raise NoSuchObject(f"Docker knows no container {name!r}")

    def image(self, reference: str) -> Mapping[str, Any]:
        self._answer()
        for facts in self._images:
            if reference in facts["RepoTags"] or facts["Id"] == reference:
                return deepcopy(facts)
        raise NoSuchObject(f"Docker knows no image {reference!r}")

    def log(self, container: str, tail: int | None = None) -> Iterator[bytes]:
        text = self._logs.get(str(self.container(container)["Id"]), b"")
        lines = text.splitlines(keepends=True)
        yield from lines if tail is None else lines[-tail:] if tail else []

    def events(self, since: float, until: float) -> Sequence[Mapping[str, Any]]:
        self._answer()
        return [event for event in self._events if since <= event["time"] <= until]

    def execute(self, container: str, argv: Sequence[str], deadline_s: float) -> Ran:
        if not self.container(container)["State"]["Running"]:
            raise NoSuchObject(f"Docker refuses container {container!r}: it is not running")
        return self._program(argv)

    def run_aside(self, aside: Aside, deadline_s: float) -> Ran:
        self.image(aside.image_id)
        self.asides.append(aside)
        return self._program(aside.argv)

    def _answer(self) -> None:
        if self.down:
            raise DockerUnavailable("Docker does not answer: connection refused", "is the daemon running?")
