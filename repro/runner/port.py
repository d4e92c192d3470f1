"""The ports of this room: what starts a server, what a started one can do, what says it is ready, who is told.

Every engine (a process, a container, several nodes, an attached endpoint) gives the same `Server`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from repro.domain.launch import Launch
from repro.domain.stage import Stage
from repro.machine.family import Activity
from repro.triage import ExitEvidence


@dataclass(frozen=True)
class Place:
    """Where a server's files go. `records` is the workspace's folder of server records, `log` the file its output is
    appended to, `cwd` the folder it runs in (None: repro's own, so that relative model paths keep their meaning)."""

    records: Path
    log: Path
    cwd: Path | None = None


class Ending(str, Enum):
    """What it took to end a server."""

    BY_ITSELF = "by itself"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    KILLED = "killed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class StopReport:
    """How a server ended. `code` is the exit code, negative for a signal; `left` are pids that even a kill left."""

    ending: Ending
    code: int | None
    seconds: float
    left: tuple[int, ...] = ()


class Server(Protocol):
    """A started server. Its output is in `log`; it answers, once ready, below `base_url`."""

    @property
    def id(self) -> str: ...

    @property
    def base_url(self) -> str: ...

    @property
    def log(self) -> Path: ...

    def exit_evidence(self) -> ExitEvidence | None:
        """How it ended, None while it runs."""
        ...

    def stranger(self) -> str | None:
        """Who else listens at `base_url`, in words; None if it is this server, or nobody can tell."""
        ...

    def stop(self) -> StopReport:
        """End it with its whole family and wait until all are gone. A second call gives the first one's report."""
        ...

    def activity(self) -> Activity:
        """What its whole family has used so far."""
        ...

    def where_it_waits(self) -> tuple[str, ...]:
        """A line for each of its processes: state and, where known, what it waits in (Python's or the kernel's)."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What the machine around it says of its end, a line each: kernel messages, the daemon's words."""
        ...


@runtime_checkable
class ServerGroup(Protocol):
    """A launch that is several servers; its own face as a server is that of rank 0."""

    @property
    def ranks(self) -> tuple[Server, ...]:
        """One a node, in the order of node ranks."""
        ...


def rank_log(log: Path, rank: int) -> Path:
    """Rank 0 has the launch's own log; the others' stand beside it, `server.rank1.log`."""
    return log.with_suffix(f".rank{rank}{log.suffix}") if rank else log


def logs_of(server: Server) -> tuple[Path, ...]:
    """The logs of all its ranks, rank 0 first."""
    return tuple(rank.log for rank in server.ranks) if isinstance(server, ServerGroup) else (server.log,)


class Engine(Protocol):
    """A way to start servers."""

    def start(self, launch: Launch, place: Place) -> Server:
        """Start one server and return at once. Raises a ReproError if it cannot even be tried."""
        ...


class Readiness(Protocol):
    """Given by the caller, since this room does not talk to servers."""

    def check(self, base_url: str) -> str | None:
        """None: ready. Else why not yet."""
        ...


@dataclass(frozen=True)
class StageReached:
    """A stage is proven done, `seconds` after the watch began."""

    stage: Stage
    seconds: float


@dataclass(frozen=True)
class Waiting:
    """Not ready yet and why; told when the reason changes."""

    reason: str
    seconds: float


@dataclass(frozen=True)
class Ended:
    """The watch is over: ready, or not and why."""

    ready: bool
    reason: str
    seconds: float


Event: TypeAlias = StageReached | Waiting | Ended


class Observer(Protocol):
    """Is told how a launch goes on."""

    def told(self, event: Event) -> None: ...


class NobodyWatches:
    """The observer that ignores all events."""

    def told(self, event: Event) -> None:
        del event
