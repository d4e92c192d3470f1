"""Watches one server from its start to its stop: log into triage, readiness, deadlines, and what became of it later.

    start ── await_ready ──> Ready ── requests ── after_requests ──> None (lives on) or the failure
                 └─────────> NotReady (ended, judged early, or a deadline passed)

It never stops the server: that is the caller's, who also decides whether a ready one is kept warm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from repro.domain.failure import Failure, Family
from repro.domain.stage import STARTUP_ORDER, Stage
from repro.machine.clock import Clock
from repro.runner.port import Ended, NobodyWatches, Observer, Readiness, Server, StageReached, Waiting
from repro.runner.stillness import Stillness
from repro.runner.tail import LogTail
from repro.triage import ExitEvidence, Triage

_FIRST_POLL_S = 0.05
_LAST_POLL_S = 1.0
# A log that does not grow for this long after its server's end is complete.
_QUIET_S = 0.1


@dataclass(frozen=True)
class Deadlines:
    """How long to wait, in seconds.

    `total_s` for a server to become ready; `stall_s` without a sign of life (log, CPU
    time, disk or network), for single stages `stall_by_stage`. `grace_s` lets a failing
    server print the rest of its story before the launch is ended early. `death_s` is how long an engine's death may
    take to show after a request has failed: vLLM looks every 5 s whether its engine still lives.
    """

    total_s: float = 3600.0
    stall_s: float = 600.0
    grace_s: float = 2.0
    death_s: float = 8.0
    stall_by_stage: tuple[tuple[Stage, float], ...] = ()

    def stall_for(self, stage: Stage) -> float:
        """The stall deadline while `stage` is being worked on."""
        return dict(self.stall_by_stage).get(stage, self.stall_s)


@dataclass(frozen=True)
class Ready:
    """Serves, or has passed the stage that was asked for (`stopped_after`)."""

    reached: tuple[Stage, ...]
    seconds: float
    stopped_after: Stage | None = None


@dataclass(frozen=True)
class NotReady:
    """Failed to become ready. `early_end`: judged while it still ran, so that it must be stopped now."""

    failure: Failure
    early_end: bool
    reason: str
    seconds: float


Readied: TypeAlias = Ready | NotReady


class Watch:
    """The watch over one server; `triage` must have been fed nothing yet."""

    def __init__(
        self,
        server: Server,
        triage: Triage,
        clock: Clock,
        deadlines: Deadlines = Deadlines(),
        observer: Observer | None = None,
    ) -> None:
        self._server = server
        self._triage = triage
        self._clock = clock
        self._deadlines = deadlines
        self._observer = observer or NobodyWatches()
        self._tail = LogTail(server.log)
        self._begun = clock.monotonic()
        self._reached: tuple[Stage, ...] = ()
        self._diagnosis = triage.diagnose()
        self._waiting_for = ""
        self._finished = False

    @property
    def reached(self) -> tuple[Stage, ...]:
        """What is proven done, as of the last look at the log."""
        return self._reached

    def await_ready(self, readiness: Readiness, stop_after: Stage | None = None) -> Readied:
        """Wait until the server is ready, has passed `stop_after`, has failed, or a deadline has passed."""
        end = self._wait(readiness, stop_after)
        reason = end.reason if isinstance(end, NotReady) else f"passed {stop_after}" if end.stopped_after else "ready"
        self._observer.told(Ended(isinstance(end, Ready), reason, end.seconds))
        return end

    def after_requests(self, suspected: bool) -> Failure | None:
        """The failure that the server's end or log tells of after requests, None if it lives on.

        With `suspected` (a request missed its expectation) an engine's death gets `death_s` to show; without, one look
        is taken: also a server that ended with exit code 0 has failed.
        """
        deadline = self._clock.monotonic() + (self._deadlines.death_s if suspected else 0.0)
        poll = _FIRST_POLL_S
        while True:
            evidence = self._server.exit_evidence()
            self._look()
            if evidence is not None:
                return self._failure_at_exit(evidence)
            if self._clock.monotonic() >= deadline:
                # A cause in the log counts for requests that failed; beside requests that passed it is a mere line.
                return self._diagnosis.failure() if suspected and self._diagnosis.certain else None
            self._clock.sleep(poll)
            poll = min(poll * 1.5, _LAST_POLL_S)

    def still_alive(self) -> bool:
        """Whether the server's leading process still runs; cheap."""
        return self._server.exit_evidence() is None

    def _wait(self, readiness: Readiness, stop_after: Stage | None) -> Readied:
        stillness = Stillness(self._server.activity, self._clock.monotonic())
        certain_since: float | None = None
        poll = _FIRST_POLL_S
        while True:
            # First the process, then its log: what it wrote before its end is then surely seen.
            evidence = self._server.exit_evidence()
            if self._look():
                stillness.alive(self._clock.monotonic())
            if evidence is not None:
                return self._not_ready(self._failure_at_exit(evidence), False, "the server ended before it was ready")
            if stop_after is not None and stop_after in self._reached:
                return Ready(self._reached, self._seconds(), stop_after)
            why_not = readiness.check(self._server.base_url)
            if why_not is None:
                self._look()
                return self._ready()
            self._tell_waiting(why_not)
            now = self._clock.monotonic()
            failure = self._diagnosis.failure() if self._diagnosis.certain else None
            if failure is not None:
                certain_since = now if certain_since is None else certain_since
                if now - certain_since >= self._deadlines.grace_s:
                    return self._not_ready(failure, True, "ended early: the log already tells the cause")
            over = self._deadline_passed(now, stillness)
            if over is not None:
                return self._not_ready(self._hang(over), True, over)
            self._clock.sleep(poll)
            poll = min(poll * 1.5, _LAST_POLL_S)

    def _look(self) -> bool:
        """Feed what the log has grown by; whether it has."""
        grown = False
        while piece := self._tail.read():
            grown = True
            self._triage.feed(piece)
        if grown:
            self._diagnosis = self._triage.diagnose()
            self._add_reached(tuple(item.stage for item in self._diagnosis.reached))
        return grown

    def _add_reached(self, stages: tuple[Stage, ...]) -> None:
        for stage in stages:
            if stage not in self._reached:
                self._reached = (*self._reached, stage)
                self._observer.told(StageReached(stage, self._seconds()))

    def _ready(self) -> Ready:
        self._add_reached((Stage.API_READY,))
        return Ready(self._reached, self._seconds())

    def _failure_at_exit(self, evidence: ExitEvidence) -> Failure:
        # Workers may outlive the leader by a moment and tell their part of the story in it.
        deadline = self._clock.monotonic() + self._deadlines.grace_s
        while self._clock.monotonic() < deadline:
            self._clock.sleep(_QUIET_S)
            if not self._look():
                break
        if not self._finished:
            self._triage.finish()
            self._finished = True
        failure = self._triage.diagnose(evidence).failure()
        if failure is not None:
            return failure
        detail = f"the server ended with {_exit_words(evidence)} and its log tells no cause"
        return Failure(_next_stage(self._reached), Family.OTHER, reached=self._reached, detail=detail)

    def _deadline_passed(self, now: float, stillness: Stillness) -> str | None:
        if now - self._begun >= self._deadlines.total_s:
            return f"not ready within {self._deadlines.total_s:g} s"
        stall_s = self._deadlines.stall_for(_next_stage(self._reached))
        if stillness.stalled(now, stall_s):
            return f"no log line, no CPU time and no disk or network traffic for {stall_s:g} s"
        return None

    def _hang(self, reason: str) -> Failure:
        """What the log tells of a server that still runs: a cause that it names, or the stage it was waiting in."""
        places = "; ".join(self._server.where_it_waits())
        detail = f"{reason}; processes: {places}" if places else reason
        failure = self._triage.diagnose(ExitEvidence()).failure()
        if failure is None:
            return Failure(
                _next_stage(self._reached), Family.HANG, reached=self._reached, confidence=0.5, detail=detail
            )
        return replace(failure, detail=f"{detail}; {failure.detail}" if failure.detail else detail)

    def _not_ready(self, failure: Failure, early_end: bool, reason: str) -> NotReady:
        return NotReady(failure, early_end, reason, self._seconds())

    def _tell_waiting(self, reason: str) -> None:
        if reason != self._waiting_for:
            self._waiting_for = reason
            self._observer.told(Waiting(reason, self._seconds()))

    def _seconds(self) -> float:
        return self._clock.monotonic() - self._begun


def _next_stage(reached: tuple[Stage, ...]) -> Stage:
    """The stage after the last one that is proven done; serving if all of the start-up is."""
    last = max((stage.position for stage in reached), default=-1)
    return STARTUP_ORDER[min(last + 1, len(STARTUP_ORDER) - 1)]


def _exit_words(evidence: ExitEvidence) -> str:
    return f"exit code {evidence.code}" if evidence.signal is None else f"signal {evidence.signal}"
