"""Containers as values: what was started, with which environment, whether it is vLLM, and what became of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from repro.errors import DockerUnavailable, UsageError
from repro.machine.docker_api import connect
from repro.machine.docker_port import ContainerHistory, ContainerReader, Docker, NoSuchObject
from repro.machine.processes import looks_like_vllm_server

# The start-up of a vLLM with many ranks prints a few thousand lines; the "non-default args" stand near the beginning.
_LOG_LINES = 20_000
_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
# How long ago a container may have ended to be taken for the failure that is being looked at.
RECENT_S = 24 * 3600.0
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")


@dataclass(frozen=True)
class InspectedContainer:
    """A container as it was started; `argv` is entrypoint and arguments together, `log` its last lines."""

    id: str
    image: str
    image_id: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    running: bool
    log: str


@dataclass(frozen=True)
class FoundContainer:
    """A vLLM container in the daemon's list; `ended` and `started` in Unix seconds, None where they are not."""

    id: str
    name: str
    image: str
    running: bool
    started: float | None
    ended: float | None
    pid: int | None


@dataclass(frozen=True)
class RemovedContainer:
    """A container that is gone, as the daemon's events remember it; `exit_code` None where they do not."""

    id: str
    name: str
    image: str
    removed: float
    exit_code: int | None


def inspect_container(name: str, docker: Docker | None = None) -> InspectedContainer:
    """A container by name or id, running or not. Raises UsageError for an unknown one, DockerUnavailable otherwise."""
    docker = docker or connect()
    try:
        facts = docker.container(name)
        log = b"".join(docker.log(name, _LOG_LINES)) if started_at(facts) is not None else b""
    except NoSuchObject:
        raise UsageError(
            f"Docker knows no container {name!r}",
            "see `docker ps --all`; one started with --rm is gone with its log once it has ended",
        ) from None
    except DockerUnavailable as error:
        raise DockerUnavailable(f"Docker does not tell about {name!r}: {error.message}", error.hint) from error
    return InspectedContainer(
        id=facts["Id"],
        image=facts["Config"].get("Image", ""),
        image_id=facts.get("Image", ""),
        argv=argv_of(facts),
        environment=environment_of(facts),
        running=bool(facts["State"].get("Running")),
        log=log.decode("utf-8", "replace"),
    )


def argv_of(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """Entrypoint and arguments as run."""
    return (facts["Path"], *facts["Args"])


def environment_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """The environment that the container was made with, the image's own included."""
    pairs = (pair.partition("=") for pair in facts["Config"].get("Env") or ())
    return {key: value for key, _, value in pairs}


def started_at(facts: Mapping[str, Any]) -> float | None:
    """When it was started last (Unix seconds), None if never."""
    return unix_time(facts["State"].get("StartedAt"))


def unix_time(text: str | None) -> float | None:
    """Docker's time (`2026-12-01T15:02:03.123456789Z`, or with a zone) as Unix seconds; its zero time is None."""
    match = _TIME.fullmatch(text or "")
    if match is None or match[1].startswith("0001"):
        return None
    zone = "+00:00" if match[3] == "Z" else match[3]
    return datetime.fromisoformat(match[1] + zone).timestamp() + float(match[2] or 0)


def find_vllm_containers(docker: ContainerReader, now: float, recent_s: float = RECENT_S) -> tuple[FoundContainer, ...]:
    """vLLM containers that run, or ended within `recent_s` before `now`, newest start first."""
    found = [_found(facts) for facts in _inspected(docker) if _is_vllm(facts)]
    kept = [each for each in found if each.running or (each.ended is not None and now - each.ended <= recent_s)]
    return tuple(sorted(kept, key=lambda each: each.started or 0.0, reverse=True))


def find_removed(
    history: ContainerHistory, name: str, now: float, recent_s: float = RECENT_S
) -> RemovedContainer | None:
    """The last container of this name or id (prefix) that the daemon remembers to have removed."""
    last: RemovedContainer | None = None
    codes: dict[str, int] = {}
    for event in history.events(now - recent_s, now):
        actor = event.get("Actor") or {}
        told, id = actor.get("Attributes") or {}, str(actor.get("ID") or event.get("id") or "")
        if told.get("name") != name and not (len(name) >= 4 and id.startswith(name)):
            continue
        if event.get("Action") == "die" and str(told.get("exitCode", "")).isdigit():
            codes[id] = int(told["exitCode"])
        if event.get("Action") == "destroy":
            last = RemovedContainer(
                id, told.get("name", name), told.get("image", ""), float(event.get("time", 0)), codes.get(id)
            )
    return last


def container_of_process(pid: int, root: Path = Path("/")) -> str | None:
    """The id of the container that a process of this host runs in, by its control group; None outside of any."""
    try:
        text = (root / "proc" / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for part in text.replace(".scope", "").replace("/", "\n").replace("-", "\n").splitlines():
        if len(part) == 64 and all(char in "0123456789abcdef" for char in part):
            return part
    return None


def sees_our_files(pid: int, root: Path = Path("/")) -> bool:
    """Whether a process has the mounts that we have; True where the kernel does not say."""
    try:
        theirs, ours = ((root / "proc" / str(each) / "ns/mnt").readlink() for each in (pid, os.getpid()))
    except OSError:
        return True
    return theirs == ours


def process_of_container(facts: Mapping[str, Any], root: Path = Path("/")) -> int | None:
    """The container's first process if it can be seen on this host; a remote daemon's pids mean nothing here."""
    pid = int(facts["State"].get("Pid") or 0)
    return pid if pid and container_of_process(pid, root) == facts["Id"] else None


def _inspected(docker: ContainerReader) -> Iterator[Mapping[str, Any]]:
    for listed in docker.listed():
        try:
            yield docker.container(listed["Id"])
        except NoSuchObject:
            continue


def _is_vllm(facts: Mapping[str, Any]) -> bool:
    argv = argv_of(facts)
    repository = str(facts["Config"].get("Image", "")).split("@")[0].rpartition("/")[2].split(":")[0]
    return _starts_vllm(argv) or repository.startswith("vllm")


def _starts_vllm(argv: Sequence[str]) -> bool:
    if looks_like_vllm_server(argv):
        return True
    in_a_shell = bool(argv) and PurePath(argv[0]).name in _SHELLS
    return in_a_shell and any("vllm serve" in word or "vllm.entrypoints" in word for word in argv[1:])


def _found(facts: Mapping[str, Any]) -> FoundContainer:
    state = facts["State"]
    running = bool(state.get("Running"))
    return FoundContainer(
        id=facts["Id"],
        name=str(facts.get("Name", "")).lstrip("/"),
        image=str(facts["Config"].get("Image", "")),
        running=running,
        started=unix_time(state.get("StartedAt")),
        ended=None if running else unix_time(state.get("FinishedAt")),
        pid=process_of_container(facts) if running else None,
    )
