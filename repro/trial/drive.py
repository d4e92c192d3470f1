"""Drives any search generator: feeds it recorded answers first, then carries out what is new, journaling every step.

    ask ──> journal "ask" ──> for each trial: journal "started" > carried out > journal "finished" > history
                                                    │ unresolved: journal "tried", again, up to a limit

What is on disk is always enough to go on: a trial without a "finished" is carried out again, all else is not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from repro.domain.finding import SearchResult
from repro.domain.outcome import Unresolved
from repro.domain.trial import Answer, Ask, Fresh, Reply, Search, Stop, Trial
from repro.domain.variable import Configuration, Value
from repro.errors import Interrupted
from repro.machine.clock import Clock
from repro.session.codec import answer_from_json, answer_to_json, ask_to_json, cost_to_json, result_to_json
from repro.session.journal import Event, Journal
from repro.trial.carry import Carried
from repro.trial.progress import Note, Observer, TrialFinished, TrialStarted
from repro.trial.record import Recorded, summed


class Carries(Protocol):
    """Whoever carries trials out."""

    def needs_launch(self, trial: Trial) -> bool: ...

    def carry(self, trial: Trial) -> Carried: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Limits:
    """What a search may cost over all its runs; None is unlimited. `tries`: how often an unresolved trial is tried."""

    launches: int | None = None
    seconds: float | None = None
    tries: int = 3


class Driver:
    """One run of a search on one machine. `project` makes the history say what the journal says."""

    def __init__(
        self,
        carrier: Carries,
        journal: Journal,
        project: Callable[[list[Event]], str | None],
        clock: Clock,
        observer: Observer,
        limits: Limits,
    ) -> None:
        self._carrier = carrier
        self._journal = journal
        self._project = project
        self._clock = clock
        self._observer = observer
        self._limits = limits
        self._recorded = Recorded(journal.events)
        self._spent = self._recorded.spent
        self._number = 0
        self._configurations: dict[str, Configuration] = {}
        self._told = False

    def run(self, search: Search) -> SearchResult:
        """The search's result. Raises Interrupted on Ctrl-C; whatever ends it, no server stays."""
        try:
            result = self._loop_and_close(search)
        except KeyboardInterrupt as interrupt:
            raise Interrupted(
                "interrupted; the server was stopped", "go on with `repro bisect --resume`"
            ) from interrupt
        self._journal.append("result", **result_to_json(result))
        self._write_history()
        return result

    def _loop_and_close(self, search: Search) -> SearchResult:
        try:
            return self._loop(search)
        except KeyboardInterrupt:
            self._journal.append("interrupted")
            raise
        finally:
            self._carrier.close()

    def _loop(self, search: Search) -> SearchResult:
        try:
            ask = next(search)
            while True:
                ask = search.send(self._reply(ask))
        except StopIteration as end:
            result: SearchResult = end.value
            return result

    def _reply(self, ask: Ask) -> Reply:
        recorded = self._recorded.knows(ask)
        answers = [self._recorded.answer(t.id) for t in ask.trials] if recorded else [None] * len(ask.trials)
        todo = tuple(t for t, answer in zip(ask.trials, answers, strict=True) if answer is None)
        if todo and (over := self._over_budget(todo)) is not None:
            return self._stop(over)
        if not recorded:
            self._journal.append("ask", **ask_to_json(ask))
        self._configurations.update((t.id, t.configuration) for t in ask.trials)
        replies = []
        for trial, answer in zip(ask.trials, answers, strict=True):
            self._number += 1
            reply = answer if answer is not None else self._carry(trial, ask.reason)
            if isinstance(reply, Stop):
                return reply
            replies.append(reply)
        return tuple(replies)

    def _over_budget(self, todo: tuple[Trial, ...]) -> str | None:
        """Stops before a launch that the budget does not cover, not after it."""
        limits = self._limits
        fresh = sum(t.fresh is Fresh.REQUIRED for t in todo)
        needed = fresh or int(self._carrier.needs_launch(todo[0]))
        if limits.launches is not None and self._spent.launches + needed > limits.launches:
            return f"the budget of {limits.launches} launches does not cover the next trial"
        if limits.seconds is not None and self._spent.seconds >= limits.seconds:
            return f"the budget of {limits.seconds:.0f} s is spent"
        return None

    def _stop(self, over: str) -> Stop:
        self._journal.append("stopped", reason=over)
        return Stop(over)

    def _carry(self, trial: Trial, reason: str) -> Answer | Stop:
        total = self._recorded.tried(trial.id)
        launches = self._carrier.needs_launch(trial)
        for attempt in range(1, self._limits.tries + 1):
            # Asked before every try: a server that died in the trial before, or in the try before, must be paid too.
            if (over := self._over_budget((trial,))) is not None:
                return self._stop(over)
            if attempt == 1:
                changed = self._changed(trial)
                self._observer.told(TrialStarted(self._number, trial, reason, launches, changed))
            self._journal.append("started", trial=trial.id, attempt=attempt)
            carried = self._carrier.carry(trial)
            cost = carried.answer.cost
            total, self._spent = summed(total, cost), summed(self._spent, cost)
            # As the journal will give it back: the search must decide on the same figures when it is resumed.
            answer = answer_from_json(answer_to_json(replace(carried.answer, cost=total)))
            outcome = answer.outcome
            if not isinstance(outcome, Unresolved) or not outcome.again or attempt == self._limits.tries:
                break
            self._journal.append("tried", trial=trial.id, attempt=attempt, reason=outcome.reason, **cost_to_json(cost))
            self._observer.told(TrialFinished(self._number, trial, answer, again=True))
        self._journal.append("finished", answer=answer_to_json(answer), log=carried.log, requests=carried.facts)
        self._write_history()
        self._observer.told(TrialFinished(self._number, trial, answer))
        return answer

    def _changed(self, trial: Trial) -> tuple[tuple[str, Value], ...]:
        before, now = self._configurations.get(trial.parent or ""), trial.configuration
        return () if before is None else tuple((name, now[name]) for name in now.changed_from(before))

    def _write_history(self) -> None:
        problem = self._project(self._journal.events)
        if problem is not None and not self._told:
            self._told = True  # once is enough: it will be the same each time
            self._observer.told(Note(problem))
