"""The one server of a machine: kept warm while its launch stays the same, stopped before the next one starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import urlsplit

from repro.domain.launch import Launch
from repro.domain.stage import Stage
from repro.errors import ServerStays
from repro.machine.clock import Clock
from repro.machine.processes import PortHolder, holder_of_port
from repro.probe.answer import Client
from repro.probe.readiness import CompletionReadiness, Served
from repro.runner.port import Engine, Place, Server, StopReport, logs_of, rank_log
from repro.runner.watch import Deadlines, NotReady, Ready, Watch
from repro.triage import Triage
from repro.trial.progress import Observer


class KeepLog(Protocol):
    """What becomes of a stopped server's log: masked and compressed; returns the file that is kept."""

    def __call__(self, log: Path) -> Path: ...


@dataclass
class Live:
    """A ready server. `served_requests` counts every request it has been sent, the readiness check's included."""

    server: Server
    launch: str
    watch: Watch
    client: Client
    reached: tuple[Stage, ...]
    served: Served | None
    served_requests: int


Start: TypeAlias = Live | NotReady


class Bench:
    """Starts servers one after another; never two at a time."""

    def __init__(
        self,
        engine: Engine,
        client_for: Callable[[str], Client],
        clock: Clock,
        records: Path,
        logs: Path,
        keep_log: KeepLog,
        observer: Observer,
        deadlines: Deadlines,
        cwd: Path | None = None,
    ) -> None:
        self._engine = engine
        self._client_for = client_for
        self._clock = clock
        self._records = records
        self._logs = logs
        self._keep_log = keep_log
        self._observer = observer
        self._deadlines = deadlines
        self._cwd = cwd
        self._live: Live | None = None
        self._server: Server | None = None
        self._log: Path | None = None
        self._watch: Watch | None = None
        self._foreign: PortHolder | None = None

    @property
    def foreign_holder(self) -> PortHolder | None:
        """Who listens on the port of the server that did not become ready, now that all of that server is gone."""
        return self._foreign

    def is_warm(self, launch: Launch) -> bool:
        """Whether a server of this launch is up and alive."""
        return self._live is not None and self._live.launch == launch.digest and self._live.watch.still_alive()

    def warm(self, launch: Launch) -> Live | None:
        """The running server, if it is one of this launch."""
        return self._live if self.is_warm(launch) else None

    def start(self, launch: Launch, stop_after: Stage | None = None) -> Start:
        """Stops what runs and starts a fresh server. A server that did not become ready is stopped already."""
        self.stop()
        self._foreign = None
        place = Place(self._records, self._new_log(), self._cwd)
        server = self._server = self._engine.start(launch, place)
        watch = self._watch = Watch(server, Triage(), self._clock, self._deadlines, self._observer)
        readiness = CompletionReadiness(self._client_for)
        end = watch.await_ready(readiness, stop_after)
        match end:
            case NotReady():
                self.stop()
                port = urlsplit(server.base_url).port
                self._foreign = holder_of_port(port) if port is not None else None
                return end
            case Ready():
                client = self._client_for(server.base_url)
                live = Live(server, launch.digest, watch, client, end.reached, readiness.served, readiness.requests)
                self._live = live
                return live

    @property
    def log_name(self) -> str | None:
        """The kept log's file name of the server that runs or was the last to run; of several ranks, the log of the
        one that failed first.
        """
        rank = self._watch.failed_rank if self._watch is not None else None
        if self._log is None or not rank:
            return None if self._log is None else self._log.name + ".gz"
        return rank_log(self._log, rank).name + ".gz"

    def stop(self) -> StopReport | None:
        """Ends the running server, whatever its state, and keeps its log."""
        server, self._live = self._server, None
        if server is None:
            return None
        report = server.stop()
        if report.left:
            pids = ", ".join(map(str, report.left))
            raise ServerStays(
                f"the server's processes {pids} cannot be ended, so the next server would share its GPUs with them",
                "see what they wait for (`ps -o pid,stat,wchan`); `repro clean` tries again, `--resume` goes on",
            )
        for log in logs_of(server):
            self._keep_log(log)
        # Last: an interrupt until here is followed by another stop, which leaves no raw log.
        self._server = None
        return report

    def _new_log(self) -> Path:
        """Numbered on from what is there, so that a resumed search overwrites nothing."""
        used = len({path.name.split(".")[0] for path in self._logs.glob("server-*")})
        log = self._logs / f"server-{used + 1:03d}.log"
        self._log, self._watch = log, None
        return log
