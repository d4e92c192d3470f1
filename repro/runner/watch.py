"""Watches one launch from its start to its stop: logs into triage, readiness, deadlines, and what became of it later.

    start ── await_ready ──> Ready ── requests ── after_requests ──> None (lives on) or the failure
                 └─────────> NotReady (ended, judged early, or a deadline passed)

A launch over several nodes is watched in all its ranks, and the first failing one is named. It never stops the server:
that is the caller's, who also decides whether a ready one is kept warm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from repro.domain.failure import Failure, Family
from repro.domain.stage import STARTUP_ORDER, Stage
from repro.machine.clock import Clock
from repro.machine.family import Activity
from repro.runner.group_root import RankReport, first_failing, group_failure
from repro.runner.port import (
    Ended,
    NobodyWatches,
    Observer,
    Readiness,
    Server,
    ServerGroup,
    StageReached,
    Waiting,
)
from repro.runner.rank_log import RankLog
from repro.runner.stillness import Stillness
from repro.triage import Diagnosis, ExitEvidence, Triage

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
    """Failed to become ready. `early_end`: judged while it still ran, so that it must be stopped now; `saved_s` is then
    what was left of the limit for the whole start. `rank` is the first failing one of several."""

    failure: Failure
    early_end: bool
    reason: str
    seconds: float
    saved_s: float = 0.0
    rank: int | None = None


Readied: TypeAlias = Ready | NotReady


class Watch:
    """The watch over one launch; `triage` must have been fed nothing yet, `new_triage` makes those of further ranks."""

    def __init__(
        self,
        server: Server,
        triage: Triage,
        clock: Clock,
        deadlines: Deadlines = Deadlines(),
        observer: Observer | None = None,
        new_triage: Callable[[], Triage] = Triage,
    ) -> None:
        self._server = server
        self._clock = clock
        self._deadlines = deadlines
        self._observer = observer or NobodyWatches()
        self._ranks = _ranks(server, triage, new_triage)
        self._begun = clock.monotonic()
        self._reached: tuple[Stage, ...] = ()
        self._waiting_for = ""
        self._failed_rank: int | None = None

    @property
    def failed_rank(self) -> int | None:
        """Which of several ranks the failure that was told last began in."""
        return self._failed_rank

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
            ended = self._any_ended()
            self._look()
            if ended:
                return self._failure_at_exit()
            if self._clock.monotonic() >= deadline:
                # A cause in the log counts for requests that failed; beside requests that passed it is a mere line.
                return self._certain_failure() if suspected else None
            self._clock.sleep(poll)
            poll = min(poll * 1.5, _LAST_POLL_S)

    def still_alive(self) -> bool:
        """Whether the leading process of every rank still runs; cheap."""
        return not self._any_ended()

    def _wait(self, readiness: Readiness, stop_after: Stage | None) -> Readied:
        stillness = Stillness(self._activity, self._clock.monotonic())
        certain_since: float | None = None
        poll = _FIRST_POLL_S
        while True:
            # First the process, then its log: what it wrote before its end is then surely seen.
            ended = self._any_ended()
            self._look()
            if any(rank.told_news for rank in self._ranks):
                stillness.alive(self._clock.monotonic())
            if ended:
                return self._not_ready(self._failure_at_exit(), False, "the server ended before it was ready")
            if stop_after is not None and stop_after in self._reached:
                return Ready(self._reached, self._seconds(), stop_after)
            why_not = readiness.check(self._server.base_url)
            if why_not is None:
                self._look()
                stranger = self._server.stranger()
                return self._ready() if stranger is None else self._answered_by(stranger)
            self._tell_waiting(why_not)
            now = self._clock.monotonic()
            failure = self._certain_failure()
            if failure is not None:
                certain_since = now if certain_since is None else certain_since
                if now - certain_since >= self._deadlines.grace_s:
                    return self._not_ready(failure, True, "ended early: the log already tells the cause")
            over = self._deadline_passed(now, stillness)
            if over is not None:
                return self._not_ready(self._hang(over), True, over)
            self._clock.sleep(poll)
            poll = min(poll * 1.5, _LAST_POLL_S)

    def _any_ended(self) -> bool:
        now = self._clock.monotonic()
        ended = [rank.has_ended(now) for rank in self._ranks]
        return any(ended)

    def _look(self) -> bool:
        """Feed what the logs have grown by; whether any has. What is proven done is told by the first rank."""
        now = self._clock.monotonic()
        grown = [rank.look(now) for rank in self._ranks]
        if any(grown):
            self._add_reached(tuple(item.stage for item in self._ranks[0].diagnosis.reached))
        return any(grown)

    def _add_reached(self, stages: tuple[Stage, ...]) -> None:
        for stage in stages:
            if stage not in self._reached:
                self._reached = (*self._reached, stage)
                self._observer.told(StageReached(stage, self._seconds()))

    def _ready(self) -> Ready:
        self._add_reached((Stage.API_READY,))
        return Ready(self._reached, self._seconds())

    def _answered_by(self, stranger: str) -> NotReady:
        detail = f"{self._server.base_url} is answered by {stranger}, which is not the server that was started"
        failure = Failure(Stage.API_READY, Family.PORT_IN_USE, reached=self._reached, confidence=0.9, detail=detail)
        return self._not_ready(failure, True, "another server has the port")

    def _certain_failure(self) -> Failure | None:
        """What the logs tell beyond doubt of a launch that still runs."""
        return self._failure(
            [rank.diagnosis if rank.diagnosis.certain else Diagnosis(Stage.NONE) for rank in self._ranks]
        )

    def _failure_at_exit(self) -> Failure:
        self._hear_the_rest()
        failure = self._failure([rank.judged() for rank in self._ranks])
        if failure is None:
            first = next(rank for rank in self._ranks if rank.evidence is not None)
            detail = f"the server ended with {_exit_words(first.evidence)} and its log tells no cause"
            failure = Failure(_next_stage(self._reached), Family.OTHER, reached=self._reached, detail=detail)
        notes = [note for rank in self._ranks for note in rank.server.notes()]
        return replace(failure, detail="; ".join(filter(None, (failure.detail, *notes))))

    def _hear_the_rest(self) -> None:
        """Workers may outlive the leader by a moment and tell their part of the story in it; other ranks take longer
        to see that one is gone."""
        begun = self._clock.monotonic()
        alone = len(self._ranks) == 1
        while self._clock.monotonic() - begun < (self._deadlines.grace_s if alone else self._deadlines.death_s):
            self._clock.sleep(_QUIET_S)
            self._any_ended()
            if not self._look() and all(rank.evidence is not None for rank in self._ranks):
                break

    def _failure(self, diagnoses: list[Diagnosis]) -> Failure | None:
        if len(self._ranks) == 1:
            return diagnoses[0].failure()
        reports = [
            RankReport(number, diagnosis, rank.told_at, _killed(rank.evidence))
            for number, (rank, diagnosis) in enumerate(zip(self._ranks, diagnoses, strict=True))
        ]
        first = first_failing(reports)
        self._failed_rank = None if first is None else first.rank
        return group_failure(reports)

    def _deadline_passed(self, now: float, stillness: Stillness) -> str | None:
        if now - self._begun >= self._deadlines.total_s:
            return f"not ready within {self._deadlines.total_s:g} s"
        stall_s = self._deadlines.stall_for(self._ranks[0].judged(stalled=True).stage)
        if stillness.stalled(now, stall_s):
            return f"no log line of a new kind, no CPU time and no disk or network traffic for {stall_s:g} s"
        return None

    def _activity(self) -> Activity:
        used = [rank.server.activity() for rank in self._ranks]
        return Activity(sum(u.cpu_s for u in used), sum(u.io_bytes for u in used), sum(u.network_bytes for u in used))

    def _hang(self, reason: str) -> Failure:
        """What the log tells of a server that still runs: a cause that it names, or the stage it was waiting in."""
        places = "; ".join(line for rank in self._ranks for line in _waiting(rank))
        detail = f"{reason}; processes: {places}" if places else reason
        failure = self._failure([rank.judged(stalled=True) for rank in self._ranks])
        if failure is None:
            return Failure(
                _next_stage(self._reached), Family.HANG, reached=self._reached, confidence=0.5, detail=detail
            )
        return replace(failure, detail=f"{detail}; {failure.detail}" if failure.detail else detail)

    def _not_ready(self, failure: Failure, early_end: bool, reason: str) -> NotReady:
        seconds = self._seconds()
        saved = max(0.0, self._deadlines.total_s - seconds) if early_end else 0.0
        said = f"{reason}, {saved:.0f} s before the limit" if saved else reason
        return NotReady(failure, early_end, said, seconds, saved, self._failed_rank)

    def _tell_waiting(self, reason: str) -> None:
        if reason != self._waiting_for:
            self._waiting_for = reason
            self._observer.told(Waiting(reason, self._seconds()))

    def _seconds(self) -> float:
        return self._clock.monotonic() - self._begun


def _ranks(server: Server, triage: Triage, new_triage: Callable[[], Triage]) -> tuple[RankLog, ...]:
    if not isinstance(server, ServerGroup):
        return (RankLog(None, server, triage),)
    first, *rest = server.ranks
    return (RankLog(0, first, triage), *(RankLog(n, member, new_triage()) for n, member in enumerate(rest, 1)))


def _waiting(rank: RankLog) -> tuple[str, ...]:
    said = rank.server.where_it_waits()
    return said if rank.rank is None else tuple(f"rank {rank.rank}: {line}" for line in said)


def _killed(evidence: ExitEvidence | None) -> bool:
    return evidence is not None and evidence.signal is not None and not evidence.stopped_by_us


def _next_stage(reached: tuple[Stage, ...]) -> Stage:
    """The stage after the last one that is proven done; serving if all of the start-up is."""
    last = max((stage.position for stage in reached), default=-1)
    return STARTUP_ORDER[min(last + 1, len(STARTUP_ORDER) - 1)]


def _exit_words(evidence: ExitEvidence | None) -> str:
    if evidence is None:
        return "an end that nobody saw"
    return f"exit code {evidence.code}" if evidence.signal is None else f"signal {evidence.signal}"
