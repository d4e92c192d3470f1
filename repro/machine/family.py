"""All processes of one server, found again whatever became of them, and what they are doing.

Two signs, since neither is enough: the mark in the environment that a process was started with, and the server's own
log as standard output or error. vLLM's engine and workers rename themselves, which wipes the memory that their
environment is read from; orphaned, they are then known by their output alone. A process whose environment can be read
and lacks the mark is never taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from repro.machine.clock import Clock
from repro.machine.processes import ProcessRef, end_group, same_process, with_environment_mark

_STANDARD_OUTPUTS = (1, 2)
# Scans until a family is gone for good; each ends what it saw, so only a fork between two of them needs another.
_ROUNDS = 5


@dataclass(frozen=True)
class FamilySigns:
    """How the processes of one server are known: `name=value` in the environment, `output` as fd 1 or 2."""

    name: str
    value: str
    output: Path


def find_family(signs: FamilySigns) -> tuple[ProcessRef, ...]:
    """The living processes of a server with all their descendants, oldest first; never the caller itself."""
    found = {facts.pid: facts.ref for facts in with_environment_mark(signs.name, signs.value)}
    for process in _renamed_writers_of(signs.output.resolve()):
        with suppress(psutil.Error):
            for member in (process, *process.children(recursive=True)):
                found.setdefault(member.pid, ProcessRef(member.pid, member.create_time()))
    found.pop(psutil.Process().pid, None)
    living = (ref for ref in found.values() if same_process(ref.pid, ref.started))
    return tuple(sorted(living, key=lambda ref: ref.started))


def end_family(
    signs: FamilySigns, clock: Clock, terminate_seconds: float, kill_seconds: float = 5.0
) -> tuple[int, ...]:
    """Terminate, then kill, all processes of a server until none is left. Returns the pids that would not end."""
    left: tuple[ProcessRef, ...] = ()
    for _ in range(_ROUNDS):
        members = find_family(signs)
        if not members:
            return ()
        left = end_group(
            members,
            clock,
            interrupt_seconds=0.0,
            terminate_seconds=terminate_seconds,
            kill_seconds=kill_seconds,
        )
    return tuple(ref.pid for ref in left)


def cpu_seconds(members: Sequence[ProcessRef]) -> float:
    """CPU time that these processes have used so far, user and system."""
    total = 0.0
    for ref in members:
        with suppress(psutil.Error):
            times = psutil.Process(ref.pid).cpu_times()
            total += times.user + times.system
    return total


def where_they_wait(members: Sequence[ProcessRef]) -> tuple[str, ...]:
    """A line for each process: pid, name, state and, on Linux, the kernel function that it sleeps in."""
    lines = []
    for ref in members:
        with suppress(psutil.Error):
            process = psutil.Process(ref.pid)
            line = f"{ref.pid} {process.name()} {process.status()}"
            place = _kernel_function(ref.pid)
            lines.append(f"{line} in {place}" if place else line)
    return tuple(lines)


def _renamed_writers_of(output: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if not process.environ() and any(
                file.fd in _STANDARD_OUTPUTS and file.path == str(output) for file in process.open_files()
            ):
                found.append(process)
    return found


def _kernel_function(pid: int) -> str:
    try:
        place = Path(f"/proc/{pid}/wchan").read_text().strip()
    except OSError:
        return ""
    return "" if place == "0" else place
