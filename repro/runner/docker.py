"""Starts servers as containers, by production's own client and options.

As with processes, the record is on the disk before anything exists, and the container is known by a label that it is
made with: there is no moment at which a kill of repro could lose it. A refusal of the daemon (no such image, no GPU
runtime, a mount or a port) is no error of repro but the result of the launch: the server has then ended with 125, and
its log holds the daemon's words.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from repro.domain.command.container import Container
from repro.domain.launch import Launch
from repro.errors import UsageError
from repro.machine.clock import Clock
from repro.machine.container_family import ContainerFamily
from repro.machine.detached import DetachedProcess, must_exist
from repro.machine.docker_engine import DAEMON_NAMES, ContainerClient, ContainerState
from repro.machine.family import Activity, hold_output
from repro.machine.host_trouble import HostTrouble
from repro.machine.processes import describe
from repro.redact.redactor import Redactor
from repro.runner.container_command import LABEL, ContainerCommand, container_command
from repro.runner.container_end import end_container
from repro.runner.environment import launch_environment
from repro.runner.listen import LOOPBACK, stranger_on
from repro.runner.port import Ending, Place, StopReport
from repro.runner.process import StopTimes
from repro.runner.record import MARK, ServerRecord, write_record
from repro.triage import ExitEvidence

STOP_TIMES = StopTimes()
_REFUSED = 125  # what `docker run` itself ends with where the daemon refuses
_POLL_S = 0.1
_INSPECT_S = 2.0  # a look at a container whose log is still followed
_DRAIN_S = 5.0


@dataclass(frozen=True)
class _Begun:
    """What is known of a container from its start on; `image` is the image's id where there is one."""

    client: ContainerClient
    command: ContainerCommand
    record: ServerRecord
    place: Place
    follower: DetachedProcess | None


class DockerEngine:
    """Starts each launch as a container of its own.

    `keep_listen` leaves the ports that production publishes, `network_words` take the place of its network.
    `inherited` is the environment that names are passed from.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        keep_listen: bool = False,
        network_words: tuple[str, ...] = (),
        stop_times: StopTimes = STOP_TIMES,
        inherited: Mapping[str, str] = os.environ,
        new_id: Callable[[], str] = lambda: secrets.token_hex(6),
    ) -> None:
        self._clock = clock
        self._keep_listen = keep_listen
        self._network_words = network_words
        self._stop_times = stop_times
        self._inherited = inherited
        self._new_id = new_id

    def start(self, launch: Launch, place: Place) -> DockerServer:
        """Raises UsageError, MissingProgram or DockerUnavailable, having left nothing behind."""
        container = launch.command.container
        if container is None:
            raise UsageError(
                "The command starts no container.", "Give the docker run line, or start it as a process (--engine)."
            )
        command = self._command(launch, container, container.image)
        server_id = self._new_id()
        launch_environment(launch, self._inherited, (MARK, server_id))  # names what is to be passed and is not set
        must_exist(command.client[0], self._inherited, None)
        client = ContainerClient(command.client, self._inherited)
        client.must_answer()
        image = client.image_id(container.image)
        if image is not None:
            command = self._command(launch, container, image)
        record = ServerRecord(
            id=server_id,
            launch=launch.digest,
            argv=Redactor().argv((*command.client, "create", *command.options)),
            log=str(place.log.absolute()),
            owner=describe(os.getpid()).ref,
            started=self._clock.now(),
            client=command.client,
            daemon=tuple((name, self._inherited[name]) for name in DAEMON_NAMES if name in self._inherited),
            image=image,
        )
        place.log.parent.mkdir(parents=True, exist_ok=True)
        log = place.log.open("xb")
        try:
            with log:
                hold_output(log)
                write_record(place.records, record)
                follower = _begin(client, command, record, log)
        except BaseException:
            # Also on Ctrl-C in just this moment, when the daemon may be making a container.
            end_container(record, client, place.records, self._clock)
            raise
        return DockerServer(_Begun(client, command, record, place, follower), self._clock, self._stop_times)

    def _command(self, launch: Launch, container: Container, image: str) -> ContainerCommand:
        return container_command(launch, container, image, self._keep_listen, self._network_words)


def _begin(
    client: ContainerClient, command: ContainerCommand, record: ServerRecord, log: IO[bytes]
) -> DetachedProcess | None:
    """Make, start and follow a container; None where the daemon refuses."""
    mark = {MARK: record.id}
    named = ("--name", record.container_name, "--label", f"{LABEL}={record.id}", "--pull", "never")
    if not client.create((*named, *command.options), mark, log):
        client.must_answer()
        return None
    if not client.start(record.container_name, mark, log):
        client.must_answer()
    return client.follow(record.container_name, mark, log)


class DockerServer:
    """A server that is a container; see `runner.port.Server`."""

    def __init__(self, begun: _Begun, clock: Clock, stop_times: StopTimes) -> None:
        self._begun = begun
        self._clock = clock
        self._times = stop_times
        self._follower = begun.follower
        self._last: ContainerState | None = begun.client.state(self.name) if begun.follower else None
        self._looked = clock.monotonic()
        self._family = ContainerFamily(begun.client, self.name, self._last)
        self._report: StopReport | None = None
        self._asked_to_stop = False
        self._ended_at: float | None = None
        self._trouble = HostTrouble()

    @property
    def id(self) -> str:
        return self._begun.record.id

    @property
    def name(self) -> str:
        """The container's."""
        return self._begun.record.container_name

    @property
    def image_id(self) -> str | None:
        """The id of the image that it runs; None where the daemon has no such image."""
        return self._begun.record.image

    @property
    def base_url(self) -> str:
        command = self._begun.command
        port: int | str = command.port
        if command.published and self._last is not None:
            port = self._last.ports.get(f"{port}/tcp", port)
        scheme = "https" if command.command.flag("--ssl-certfile") or command.command.flag("--ssl-keyfile") else "http"
        return f"{scheme}://{LOOPBACK}:{port}"

    @property
    def log(self) -> Path:
        return self._begun.place.log

    def exit_evidence(self) -> ExitEvidence | None:
        """Raises DockerUnavailable when the daemon has gone."""
        if self._begun.follower is None:
            return ExitEvidence(_REFUSED)
        if self._report is None:
            self._look()
        state = self._last
        if state is None:  # somebody else has removed it
            return ExitEvidence(signal=9, stopped_by_us=self._asked_to_stop)
        if state.running or not self._drained():
            return None
        code = state.code if state.code or not state.error else _REFUSED
        oom = state.oom_killed or bool(self._trouble.oom_killed())
        return ExitEvidence(code, oom_killed=oom, stopped_by_us=self._asked_to_stop)

    def _drained(self) -> bool:
        """Whether the log of an ended container is complete: its follower has ended, or has had its time."""
        if self._follower is None or self._follower.code() is not None:
            return True
        now = self._clock.monotonic()
        if self._ended_at is None:
            self._ended_at = now
        return now - self._ended_at >= _DRAIN_S

    def stranger(self) -> str | None:
        """On a network of its own it is the daemon that forwards, and it knows to whom."""
        if self._begun.command.published or self._last is None:
            return None
        return stranger_on(int(self._begun.command.port), self._family.pids())

    def activity(self) -> Activity:
        return self._family.activity()

    def where_it_waits(self) -> tuple[str, ...]:
        return self._family.where_it_waits()

    def notes(self) -> tuple[str, ...]:
        """The daemon's own word for a container that did not start, and the kernel's."""
        said = () if self._last is None or not self._last.error else (f"container state: {self._last.error}",)
        return (*said, *self._trouble.kernel_lines())

    def stop(self) -> StopReport:
        """Terminate, then kill; its log is complete and its end known before it is removed."""
        if self._report is not None:
            return self._report
        begun = self._clock.monotonic()
        ending = self._end() if self._begun.follower is not None else Ending.BY_ITSELF
        code = self._last.code if self._last is not None else None
        if self._follower is not None:
            self._wait(lambda: self._follower is None or self._follower.code() is not None, _DRAIN_S)
        gone = end_container(self._begun.record, self._begun.client, self._begun.place.records, self._clock).gone
        if self._follower is not None:
            self._follower.code()  # collected, or it would stay a zombie
        left = () if gone or self._last is None else (self._last.pid,)
        report = StopReport(ending, code, self._clock.monotonic() - begun, left)
        if gone:
            self._trouble.close()
            self._report = report
        return report

    def _end(self) -> Ending:
        self._look(now=True)
        if self._last is None or not self._last.running:
            return Ending.BY_ITSELF
        self._asked_to_stop = True
        steps = (
            ("TERM", self._times.interrupt_s + self._times.terminate_s, Ending.TERMINATED),
            ("KILL", self._times.terminate_s, Ending.KILLED),
        )
        for signal, seconds, ending in steps:
            self._begun.client.signal(self.name, signal)
            if self._wait(self._has_ended, seconds):
                return ending
        return Ending.KILLED

    def _has_ended(self) -> bool:
        self._look(now=True)
        return self._last is None or not self._last.running

    def _look(self, now: bool = False) -> None:
        """Ask the daemon when the log has ended, else now and then: a question is a process here."""
        if (leader := self._family.leader) is not None:
            self._trouble.seen(leader)
        time = self._clock.monotonic()
        ended = self._follower is not None and self._follower.code() is not None
        if not now and not ended and time - self._looked < _INSPECT_S:
            return
        self._looked = time
        if self._last is not None and not self._last.running:
            return
        self._last = self._begun.client.state(self.name)
        if ended and self._last is not None and self._last.running:
            self._follow_again()

    def _follow_again(self) -> None:
        """The log's end without the container's: the daemon was restarted under it, or somebody ended the follower."""
        with suppress(FileNotFoundError), self.log.open("ab") as log:
            hold_output(log)
            since = f"{self.log.stat().st_mtime:.6f}"
            self._follower = self._begun.client.follow(self.name, {MARK: self.id}, log, since)

    def _wait(self, over: Callable[[], bool], seconds: float) -> bool:
        deadline = self._clock.monotonic() + seconds
        while not over():
            if self._clock.monotonic() >= deadline:
                return False
            self._clock.sleep(_POLL_S)
        return True
