"""What a snapshot is of: the container, process or log that was named, or the one vLLM that is found here.

A container that is gone, a daemon that does not answer, a process that has vanished: all end in a subject that says so,
since the scene around it must be frozen all the same.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any

from repro.errors import DockerUnavailable, UsageError
from repro.machine.clock import Clock
from repro.machine.containers import (
    FoundContainer,
    RemovedContainer,
    container_of_process,
    find_removed,
    find_vllm_containers,
    process_of_container,
)
from repro.machine.docker_port import Docker, NoSuchObject
from repro.machine.processes import ProcessFacts, describe, find_vllm
from repro.redact.redactor import Redactor
from repro.snapshot.container import restarted
from repro.snapshot.log_source import ContainerLog, FileLog, LogSource

Connect = Callable[[], Docker]
Choose = Callable[[Sequence[str]], int]
_NONE_NAMED = "no container was named"
_HOST = "this host"
_NO_FILE = "the process writes to no file; its log may be with whoever started it (journalctl, tmux)"


@dataclass(frozen=True)
class Subject:
    """What to freeze; `said` names it for people, `hint`s say why a part is missing and where more may be."""

    said: str
    pid: int | None = None
    container: Mapping[str, Any] | None = None
    container_hint: str = _NONE_NAMED
    docker: Docker | None = None
    log: LogSource | None = None
    log_hint: str = ""


def find_subject(
    pid: int | None,
    container: str | None,
    log: Path | None,
    *,
    search: bool,
    connect: Connect,
    choose: Choose,
    clock: Clock,
) -> Subject:
    """The subject that was named, else with `search` the one vLLM of this host.

    Raises UsageError for a container that nobody knows, and from `choose` where several are found.
    """
    subject = Subject(_HOST)
    if container is not None:
        subject = _named_container(container, connect, clock)
    elif pid is None and search:
        subject = _found(connect, choose, clock)
    if pid is not None:
        subject = _with_process(subject, pid, connect)
    if log is not None:
        said = f"log {log}" if subject.said == _HOST else f"{subject.said}, log {log}"
        subject = replace(subject, said=said, log=FileLog(log), log_hint=_older_parts(log))
    elif subject.log is None and subject.pid is not None and subject.container is None:
        own = output_of(subject.pid)
        hint = _older_parts(own) if own else _NO_FILE
        subject = replace(subject, log=FileLog(own) if own else None, log_hint=hint)
    return subject


def output_of(pid: int, root: Path = Path("/proc")) -> Path | None:
    """The regular file that a process has as its standard output or error."""
    for number in (1, 2):
        with suppress(OSError):
            place = (root / str(pid) / "fd" / str(number)).readlink()
            if place.is_absolute() and place.is_file():
                return place
    return None


def _named_container(name: str, connect: Connect, clock: Clock) -> Subject:
    try:
        docker = connect()
        return _of_container(docker, docker.container(name))
    except DockerUnavailable as error:
        hint = f"{error.message} {error.hint}"
        return Subject(f"container {name} (Docker does not answer)", container_hint=hint, log_hint=hint)
    except NoSuchObject:
        removed = find_removed(docker, name, clock.now())
    if removed is None:
        known = [f"{each.name} ({each.image})" for each in find_vllm_containers(docker, clock.now())]
        raise UsageError(
            f"Docker knows no container {name!r}, and remembers none that was removed",
            f"vLLM containers here: {', '.join(known) or 'none'}; `docker ps --all` lists the others",
        )
    hint = _gone(removed)
    return Subject(f"container {name} (removed)", container_hint=hint, docker=docker, log_hint=hint)


def _gone(removed: RemovedContainer) -> str:
    """Why a removed container leaves nothing, and where its log may be."""
    code = "" if removed.exit_code is None else f" after exit code {removed.exit_code}"
    return (
        f"container {removed.name} (image {removed.image}) was removed{code}, and its log with it (--rm, docker rm); "
        "the log may still be with whoever started it (terminal, journalctl, CI job), "
        f"or, with Docker's journald driver, in `journalctl CONTAINER_NAME={removed.name}`"
    )


def _of_container(docker: Docker, facts: Mapping[str, Any]) -> Subject:
    name = str(facts["Name"]).lstrip("/")
    driver = str(((facts.get("HostConfig") or {}).get("LogConfig") or {}).get("Type") or "")
    hint = restarted(facts) or _rotated(facts)
    if driver == "none":
        hint = "the container runs with the log driver `none`: its log is only where its output was attached to"
    state = "running" if facts["State"].get("Running") else f"exited with {facts['State'].get('ExitCode')}"
    return Subject(
        said=f"container {name} ({state})",
        pid=process_of_container(facts),
        container=facts,
        docker=docker,
        log=None if driver == "none" else ContainerLog(docker, facts["Id"], name),
        log_hint=hint,
    )


def _rotated(facts: Mapping[str, Any]) -> str:
    options = ((facts.get("HostConfig") or {}).get("LogConfig") or {}).get("Config") or {}
    if not options.get("max-size"):
        return ""
    kept = options.get("max-file", "1")
    return f"Docker rotates this log (max-size {options['max-size']}, {kept} kept), so its beginning may be gone"


def _older_parts(log: Path) -> str:
    """Where a rotation has put what was in this file before."""
    others = sorted(path.name for path in log.parent.glob(f"{escape(log.name)}[.-]*") if path.is_file())
    return f"older parts may be beside it: {', '.join(others[:5])}" if others else ""


def _with_process(subject: Subject, pid: int, connect: Connect) -> Subject:
    """The process, and the container that it runs in if a daemon here knows it."""
    facts = describe(pid)
    said = f"process {pid}" if facts.alive else f"process {pid} (it does not exist any more)"
    inside = container_of_process(pid)
    if subject.container is not None or inside is None:
        both = said if subject.said == _HOST else f"{subject.said}, {said}"
        return replace(subject, said=both, pid=pid)
    try:
        docker = connect()
        around = _of_container(docker, docker.container(inside))
        return replace(around, said=f"{said} in {around.said}", pid=pid)
    except (DockerUnavailable, NoSuchObject) as error:
        reason = f"the process runs in container {inside[:12]}, of which Docker does not tell: {error}"
        return replace(subject, said=said, pid=pid, container_hint=reason)


def _found(connect: Connect, choose: Choose, clock: Clock) -> Subject:
    """The one vLLM here: containers that run or ended within a day, and processes outside of containers."""
    docker: Docker | None = None
    containers: tuple[FoundContainer, ...] = ()
    hint = "no vLLM container runs here or has ended within a day"
    try:
        docker = connect()
        containers = find_vllm_containers(docker, clock.now())
    except DockerUnavailable as error:
        hint = f"{error.message} {error.hint}"
    processes = [facts for facts in find_vllm() if container_of_process(facts.pid) is None]
    shown = [_container_line(each) for each in containers] + [_process_line(facts) for facts in processes]
    if not shown:
        return Subject("this host (no vLLM runs here)", container_hint=hint, docker=docker)
    at = choose(shown) if len(shown) > 1 else 0
    if docker is not None and at < len(containers):
        return _of_container(docker, docker.container(containers[at].id))
    pid = processes[at - len(containers)].pid
    return Subject(f"process {pid}", pid=pid, container_hint="the process runs in no container", docker=docker)


def _container_line(found: FoundContainer) -> str:
    state = "running" if found.running else "has ended"
    return f"--container {found.name}  ({found.image}, {state})"


def _process_line(facts: ProcessFacts) -> str:
    return f"--pid {facts.pid}  ({shlex.join(Redactor().argv(facts.argv or ()))[:100]})"


def refuse(shown: Sequence[str]) -> int:
    """The choice where nobody can be asked."""
    listed = "\n  ".join(shown)
    raise UsageError(f"{len(shown)} vLLM servers are here:\n  {listed}", "name the one that failed")


def ask(shown: Sequence[str]) -> int:
    """The choice at a terminal."""
    import click

    click.echo(f"{len(shown)} vLLM servers are here:", err=True)
    for number, line in enumerate(shown, start=1):
        click.echo(f"  {number}  {line}", err=True)
    return int(click.prompt("which one", type=click.IntRange(1, len(shown)), err=True)) - 1


def chooser(interactive: bool) -> Choose:
    """Asking is for terminals alone."""
    return ask if interactive and os.environ.get("TERM") != "dumb" else refuse
