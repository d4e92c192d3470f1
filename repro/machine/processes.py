"""Facts about running processes, and how to end exactly the ones that are meant.

A process is a pid *and* its start time: pids are used again, so both are checked before every signal. A field that
may not be read (another user's environment) is None, with the reason beside it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

import psutil

from repro.machine.clock import Clock

# Linux derives start times from a boot time rounded to seconds, which wobbles by one when the clock is adjusted.
_START_TOLERANCE = 2.0
_POLL_SECONDS = 0.05
_SERVER_MODULES = frozenset({"vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"})
_CLI_MODULES = frozenset({"vllm", "vllm.entrypoints.cli.main"})


@dataclass(frozen=True)
class ProcessRef:
    """One process beyond doubt: pid and start time (Unix seconds)."""

    pid: int
    started: float


@dataclass(frozen=True)
class ProcessFacts:
    """What could be read of one process; `unreadable` maps a field's name to why it is None."""

    pid: int
    started: float | None = None
    argv: tuple[str, ...] | None = None
    environment: Mapping[str, str] | None = None
    cwd: str | None = None
    parent: int | None = None
    children: tuple[int, ...] | None = None
    ports: tuple[int, ...] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        return self.started is not None

    @property
    def ref(self) -> ProcessRef:
        return ProcessRef(self.pid, self.started or 0.0)


@dataclass(frozen=True)
class PortHolder:
    """Who listens on a port; `pid` is None when the owner may not be seen."""

    port: int
    pid: int | None
    argv: tuple[str, ...] = ()


def describe(pid: int) -> ProcessFacts:
    """All facts of one process. Environment and argv are those of its start."""
    try:
        process = psutil.Process(pid)
        started = process.create_time()
    except psutil.Error as error:
        reason = _reason(error)
        return ProcessFacts(pid, unreadable=dict.fromkeys(_READERS, reason))
    values: dict[str, Any] = {}
    unreadable: dict[str, str] = {}
    for name, read in _READERS.items():
        try:
            values[name] = read(process)
        except (psutil.Error, OSError) as error:
            unreadable[name] = _reason(error)
    return ProcessFacts(pid=pid, started=started, unreadable=unreadable, **values)


def looks_like_vllm_server(argv: Sequence[str]) -> bool:
    """Whether an argument list, as seen in the process table, is a vLLM API server.

    The program must be vLLM itself: a shell or a tool that merely names `vllm serve` further on is not.
    """
    rest = list(argv)
    if rest and PurePath(rest[0]).name.startswith("python"):
        rest = rest[1:]
        while rest and rest[0].startswith("-") and rest[0] != "-m":
            rest = rest[2:] if rest[0] in {"-X", "-W"} else rest[1:]
    match rest:
        case ["-m", module, *after]:
            return module in _SERVER_MODULES or (module in _CLI_MODULES and after[:1] == ["serve"])
        case [program, "serve", *_]:
            return PurePath(program).name == "vllm"
        case _:
            return False


def find_vllm() -> tuple[ProcessFacts, ...]:
    """The running vLLM servers, oldest first; a server's own worker processes are not listed."""
    found = {
        process.pid: process.info
        for process in psutil.process_iter(["cmdline", "ppid", "create_time"])
        if looks_like_vllm_server(process.info["cmdline"] or ())
    }
    roots = [pid for pid, info in found.items() if info["ppid"] not in found]
    return tuple(describe(pid) for pid in sorted(roots, key=lambda pid: found[pid]["create_time"] or 0.0))


def descendants(pid: int) -> tuple[ProcessFacts, ...]:
    """All processes below this one, oldest first."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return ()
    return tuple(sorted((describe(child.pid) for child in children), key=lambda facts: facts.started or 0.0))


def holder_of_port(port: int) -> PortHolder | None:
    """Who listens on this TCP port of any local address, or None when nobody does."""
    try:
        connections: list[Any] = psutil.net_connections("tcp")
    except psutil.AccessDenied:  # macOS lets only root see all; one's own processes can be asked singly
        connections = [c for process in psutil.process_iter() for c in _own_connections(process)]
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
            pid = getattr(connection, "pid", None)
            return PortHolder(port, pid, (describe(pid).argv or ()) if pid else ())
    return None


def with_environment_mark(name: str, value: str) -> tuple[ProcessFacts, ...]:
    """All processes that were started with `name=value`, and their descendants, oldest first.

    Descendants count because a worker that renames itself may overwrite the memory that its environment is read from.
    """
    marked: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(name) == value:
                marked[process.pid] = process
    for process in list(marked.values()):
        with suppress(psutil.Error):
            marked.update((child.pid, child) for child in process.children(recursive=True))
    facts = (describe(pid) for pid in marked if pid != os.getpid())
    return tuple(sorted((f for f in facts if f.alive), key=lambda f: f.started or 0.0))


def same_process(pid: int, started: float) -> bool:
    """Whether the process that had this pid and start time still runs (a zombie does not)."""
    return _running(ProcessRef(pid, started)) is not None


def end_group(
    processes: Sequence[ProcessRef],
    clock: Clock,
    *,
    interrupt_seconds: float = 10.0,
    terminate_seconds: float = 10.0,
    kill_seconds: float = 5.0,
) -> tuple[ProcessRef, ...]:
    """End exactly these processes: interrupt, then terminate, then kill, each with its time. Returns who still runs."""
    left = tuple(processes)
    for signal_number, seconds in (
        (signal.SIGINT, interrupt_seconds),
        (signal.SIGTERM, terminate_seconds),
        (signal.SIGKILL, kill_seconds),
    ):
        for ref in left:
            process = _running(ref)
            if process is not None:
                with suppress(psutil.Error):
                    process.send_signal(signal_number)
        deadline = clock.monotonic() + seconds
        left = _still_running(left)
        while left and clock.monotonic() < deadline:
            clock.sleep(_POLL_SECONDS)
            left = _still_running(left)
        if not left:
            break
    return left


def _still_running(refs: Sequence[ProcessRef]) -> tuple[ProcessRef, ...]:
    return tuple(ref for ref in refs if _running(ref) is not None)


def _running(ref: ProcessRef) -> psutil.Process | None:
    """The process if it is proven to be the one meant; one whose start time cannot be read is never touched."""
    try:
        process = psutil.Process(ref.pid)
        if abs(process.create_time() - ref.started) > _START_TOLERANCE:
            return None
        with suppress(psutil.AccessDenied):
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
    except psutil.Error:
        return None
    return process


def _own_connections(process: psutil.Process) -> Iterator[Any]:
    with suppress(psutil.Error, OSError):
        read = getattr(process, "net_connections", None) or process.connections  # renamed in psutil 6
        for connection in read("tcp"):
            yield _Listening(connection.status, connection.laddr, process.pid)


@dataclass(frozen=True)
class _Listening:
    status: str
    laddr: Any
    pid: int


def _ports(process: psutil.Process) -> tuple[int, ...]:
    read = getattr(process, "net_connections", None) or process.connections
    return tuple(sorted({c.laddr.port for c in read("tcp") if c.status == psutil.CONN_LISTEN and c.laddr}))


_READERS: Mapping[str, Callable[[psutil.Process], Any]] = {
    "argv": lambda p: tuple(p.cmdline()),
    "environment": lambda p: p.environ(),
    "cwd": lambda p: p.cwd(),
    "parent": lambda p: p.ppid(),
    "children": lambda p: tuple(sorted(c.pid for c in p.children(recursive=True))),
    "ports": _ports,
}


def _reason(error: Exception) -> str:
    if isinstance(error, psutil.AccessDenied):
        return "permission denied; needs the process's user or root"
    if isinstance(error, psutil.ZombieProcess):
        return "the process has ended and waits to be collected by its parent"
    if isinstance(error, psutil.NoSuchProcess):
        return "the process does not exist (any more)"
    return str(error)
