"""Starts servers as processes of this machine.

The output goes straight into the log file, not through a pipe: a killed repro breaks no pipe and loses no line. The
record is on the disk before the process exists, so that there is no moment at which a kill of repro could lose it.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from repro.domain.launch import Launch
from repro.errors import UsageError
from repro.machine.clock import Clock
from repro.machine.detached import DetachedProcess, must_exist, start_detached
from repro.machine.family import Activity, activity, end_family, find_family, hold_output
from repro.machine.host_trouble import HostTrouble
from repro.machine.processes import describe
from repro.machine.stacks import where_they_wait
from repro.redact.redactor import Redactor
from repro.runner.environment import launch_environment
from repro.runner.listen import LOOPBACK, Listening, as_written, on_free_port, stranger_on
from repro.runner.port import Ending, Place, StopReport
from repro.runner.record import MARK, ServerRecord, mark_ended, write_record
from repro.triage import ExitEvidence

_POLL_S = 0.02
_HASTE_S = 0.2
_FAMILY_POLL_S = 0.1  # a look at every process of the machine


@dataclass(frozen=True)
class StopTimes:
    """How long a server may take to obey an interrupt and a termination, and its workers to follow it, in seconds.

    A healthy vLLM stops within a second or, with many ranks, within a few; a hanging one ignores both.
    """

    interrupt_s: float = 10.0
    terminate_s: float = 5.0
    family_s: float = 3.0


class ProcessEngine:
    """Starts each launch as a process of its own session.

    `keep_listen` leaves production's own --host and --port. `place_words` stand in front of the command and say where
    it runs (a network namespace), `address` is where it listens there. `inherited` is the environment that names are
    passed from.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        keep_listen: bool = False,
        place_words: tuple[str, ...] = (),
        address: str = LOOPBACK,
        stop_times: StopTimes = StopTimes(),
        inherited: Mapping[str, str] = os.environ,
        new_id: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        self._clock = clock
        self._keep_listen = keep_listen
        self._place_words = place_words
        self._address = address
        self._stop_times = stop_times
        self._inherited = inherited
        self._new_id = new_id

    def start(self, launch: Launch, place: Place) -> ProcessServer:
        """Raises UsageError, MissingProgram or PortInUse, having started nothing."""
        if launch.command.container is not None:
            raise UsageError(
                "The command starts a container, which cannot be run as a plain process.",
                "Give the vLLM command that runs inside it.",
            )
        listening = as_written(launch.command) if self._keep_listen else on_free_port(launch.command, self._address)
        server_id = self._new_id()
        environment = launch_environment(launch, self._inherited, (MARK, server_id))
        argv = (*self._place_words, *listening.command.argv())
        must_exist(argv[0], environment, place.cwd)
        record = self._record(server_id, launch, argv, place)
        place.log.parent.mkdir(parents=True, exist_ok=True)
        # A log of its own, never another server's: it is also what a renamed worker is known by.
        log = place.log.open("xb")
        try:
            with log:
                hold_output(log)
                write_record(place.records, record)
                process = start_detached(argv, environment, place.cwd, log)
        except BaseException:
            # Also on Ctrl-C in just this moment, when a child may exist whose pid nobody has been told.
            if end_family(record.signs, self._clock, self._stop_times.terminate_s).gone:
                mark_ended(place.records, record, self._clock.now())
            raise
        elsewhere = self._address != LOOPBACK
        return ProcessServer(process, record, listening, place, self._clock, self._stop_times, elsewhere)

    def _record(self, server_id: str, launch: Launch, argv: tuple[str, ...], place: Place) -> ServerRecord:
        return ServerRecord(
            id=server_id,
            launch=launch.digest,
            argv=Redactor().argv(argv),
            log=str(place.log.absolute()),
            owner=describe(os.getpid()).ref,
            started=self._clock.now(),
        )


class ProcessServer:
    """A server that is a process; see `runner.port.Server`."""

    def __init__(
        self,
        process: DetachedProcess,
        record: ServerRecord,
        listening: Listening,
        place: Place,
        clock: Clock,
        stop_times: StopTimes,
        elsewhere: bool,
    ) -> None:
        self._process = process
        self._elsewhere = elsewhere  # in a network whose ports are not seen from here
        self._record = record
        self._listening = listening
        self._place = place
        self._clock = clock
        self._times = stop_times
        self._report: StopReport | None = None
        self._asked_to_stop = False
        self._trouble = HostTrouble()
        self._trouble.seen(process.pid)

    @property
    def id(self) -> str:
        return self._record.id

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def base_url(self) -> str:
        return self._listening.base_url

    @property
    def argv(self) -> tuple[str, ...]:
        """The argument list that was started, host and port included."""
        return self._listening.command.argv()

    @property
    def log(self) -> Path:
        return self._place.log

    def exit_evidence(self) -> ExitEvidence | None:
        code = self._process.code()
        if code is None:
            self._trouble.seen(self.pid)
            return None
        return ExitEvidence(
            code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            oom_killed=self._trouble.oom_killed(),
            stopped_by_us=self._asked_to_stop,
        )

    def stranger(self) -> str | None:
        if self._elsewhere:
            return None
        pids = {ref.pid for ref in find_family(self._record.signs)}
        return stranger_on(int(self.base_url.rpartition(":")[2]), pids)

    def activity(self) -> Activity:
        return activity(find_family(self._record.signs), own_network=True)

    def where_it_waits(self) -> tuple[str, ...]:
        return where_they_wait(find_family(self._record.signs))

    def notes(self) -> tuple[str, ...]:
        return self._trouble.kernel_lines()

    def stop(self) -> StopReport:
        """The leader is asked first, alone, since a vLLM that obeys takes its engine and workers along in order."""
        if self._report is not None:
            return self._report
        begun = self._clock.monotonic()
        ending = self._end_leader()
        # Workers follow a leader that went in order; those of one that had to be killed are given no time for it.
        orderly = ending is not Ending.KILLED
        if orderly:
            self._wait(lambda: not find_family(self._record.signs), self._times.family_s, _FAMILY_POLL_S)
        end = end_family(self._record.signs, self._clock, self._times.terminate_s if orderly else _HASTE_S)
        report = StopReport(ending, self._process.code(), self._clock.monotonic() - begun, end.left)
        if end.gone:
            mark_ended(self._place.records, self._record, self._clock.now())
            self._trouble.close()
            self._report = report
        return report

    def _end_leader(self) -> Ending:
        if self._process.code() is not None:
            return Ending.BY_ITSELF
        self._asked_to_stop = True
        steps = (
            (signal.SIGINT, self._times.interrupt_s, Ending.INTERRUPTED),
            (signal.SIGTERM, self._times.terminate_s, Ending.TERMINATED),
            (signal.SIGKILL, self._times.terminate_s, Ending.KILLED),
        )
        for number, seconds, ending in steps:
            self._process.send(number)
            if self._wait(lambda: self._process.code() is not None, seconds):
                return ending
        return Ending.KILLED

    def _wait(self, over: Callable[[], bool], seconds: float, poll: float = _POLL_S) -> bool:
        deadline = self._clock.monotonic() + seconds
        while not over():
            if self._clock.monotonic() >= deadline:
                return False
            self._clock.sleep(poll)
        return True
