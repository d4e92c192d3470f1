"""All processes of one server, found again whatever became of them, and what they have used.

Two signs, since neither is enough: the mark in the environment that a process was started with, and the server's own
log as standard output or error. vLLM's engine and workers rename themselves, which wipes the memory that their
environment is read from; orphaned, they are then known by their output alone. A process whose environment can be read
and lacks the mark is never taken for one.

That none is left is told by a lock on the log, which every process inherits with the open file: also one that was
forked in the moment of its owner's death and will show its mark only when it is at last given time to execute.
"""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from repro.machine.clock import Clock
from repro.machine.processes import ProcessRef, end_group, same_process, with_environment_mark

_STANDARD_OUTPUTS = (1, 2)
# For a process that is still between fork and exec: on a crowded machine that took half a second.
_APPEAR_S = 10.0
_LOOK_S = 0.05
# Each round ends what it saw; only a fork in between needs another.
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


@dataclass(frozen=True)
class Activity:
    """What processes have used so far: CPU seconds, bytes read and written, bytes over a network of their own."""

    cpu_s: float = 0.0
    io_bytes: int = 0
    network_bytes: int = 0


@dataclass(frozen=True)
class FamilyEnd:
    """What ending a family came to: pids that were ended, pids that would not, and whether nobody at all is left."""

    ended: tuple[int, ...]
    left: tuple[int, ...]
    gone: bool


def hold_output(output: IO[bytes]) -> None:
    """Lock an open log for whoever inherits it. The lock ends with the last process that has it open from here."""
    with suppress(OSError):  # a file system without locks: only the wait for a late child is lost
        fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_output_held(path: Path) -> bool:
    """Whether any process still has the log open that was locked by `hold_output`."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def end_family(signs: FamilySigns, clock: Clock, terminate_seconds: float, kill_seconds: float = 5.0) -> FamilyEnd:
    """Terminate, then kill, all processes of a server until none is left; the caller must have closed its log."""
    seen: dict[int, ProcessRef] = {}
    late = clock.monotonic() + _APPEAR_S
    rounds = _ROUNDS
    while rounds > 0:
        members = find_family(signs)
        if not members:
            if not is_output_held(signs.output) or clock.monotonic() >= late:
                break
            clock.sleep(_LOOK_S)
            continue
        seen.update((ref.pid, ref) for ref in members)
        rounds -= 1
        end_group(
            members,
            clock,
            interrupt_seconds=0.0,
            terminate_seconds=terminate_seconds,
            kill_seconds=kill_seconds,
        )
    left = tuple(pid for pid, ref in sorted(seen.items()) if same_process(pid, ref.started))
    ended = tuple(pid for pid in sorted(seen) if pid not in left)
    return FamilyEnd(ended, left, gone=not left and not is_output_held(signs.output))


def activity(members: Sequence[ProcessRef], own_network: bool = False) -> Activity:
    """What these processes have used so far. The network counts with `own_network` alone, and if it is not this one:
    in a network that is shared with the host, the bytes of all others would be counted too.
    """
    cpu, moved = 0.0, 0
    for ref in members:
        with suppress(psutil.Error, OSError):
            process = psutil.Process(ref.pid)
            times = process.cpu_times()
            cpu += times.user + times.system
            moved += _bytes_moved(ref.pid)
    network = _network_bytes(members[0].pid) if own_network and members else 0
    return Activity(cpu, moved, network)


def _bytes_moved(pid: int) -> int:
    """What it read and wrote by system calls (rchar, wchar), and what its page faults fetched from a disk."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return sum(int(fields.get(name, 0)) for name in ("rchar", "wchar", "read_bytes"))


def _network_bytes(pid: int) -> int:
    """Bytes in and out of the network namespace that a process is in, loopback left out; 0 in the host's own."""
    try:
        if Path(f"/proc/{pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
            return 0
        rows = [line.split() for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]]
    except OSError:
        return 0
    return sum(int(row[1]) + int(row[9]) for row in rows if row[0] != "lo:")


def _renamed_writers_of(output: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if not process.environ() and any(
                file.fd in _STANDARD_OUTPUTS and file.path == str(output) for file in process.open_files()
            ):
                found.append(process)
    return found
