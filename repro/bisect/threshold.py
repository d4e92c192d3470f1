"""Narrows the threshold of one ordinal member of a failing set, then looks for bands above and below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

from repro.bisect.ledger import Ledger, shows
from repro.bisect.split import level_probe, narrow_enough, probe, rounded_ratio
from repro.domain.failure import Signature
from repro.domain.finding import Bracket
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.trial import Ask, Purpose, Reply
from repro.domain.variable import Configuration, Kind, Variable

# A prompt of one exact length can often not be built while its neighbours can.
NEIGHBOURS = (1, -1, 2, -2)


@dataclass(frozen=True)
class Narrowing:
    """What stays fixed while one threshold is narrowed: `failing` shows the target, with `variable` at production."""

    ledger: Ledger
    target: frozenset[Signature]
    variable: Variable
    failing: Configuration
    precision: float

    def at(self, value: int) -> Configuration:
        return self.failing.with_value(self.variable.name, value)

    def observe(self, value: int, purpose: Purpose) -> Generator[Ask, Reply, Outcome]:
        reason = f"{self.variable.name} = {value}"
        parent = self.ledger.first_id[self.failing]
        answer = yield from self.ledger.consider(self.at(value), parent, purpose, reason)
        return answer.outcome


def narrow(task: Narrowing) -> Generator[Ask, Reply, Bracket]:
    """The bracket (largest passing, smallest failing) of an ordinal member, with the values on its wrong side."""
    variable = task.variable
    if not (isinstance(variable.minimal, int) and isinstance(variable.production, int)):
        raise TypeError(f"{variable.name} is not ordinal")
    next_value = _chooser(variable, task.precision, crash_ratio(task.ledger, task.target, variable.kind))
    # Between `passing` and `low` lies what failed otherwise or could not be tried: the target was not seen there.
    passing, low, high = variable.minimal, variable.minimal, variable.production
    hidden = ""
    while (value := next_value(low, high)) is not None:
        value, outcome = yield from _tell(task, value, low, high)
        if shows(outcome, task.target):
            high = value
            continue
        low = value
        if isinstance(outcome, Passed):
            passing = value
        else:
            hidden = f"{_other(outcome)} at {value}"
    exceptions = yield from _bands(task, low, high)
    if passing == low:
        return Bracket(passing, high, _why_narrow(low, high, variable), exceptions)
    return Bracket(passing, high, hidden, exceptions, open=True)


def _tell(task: Narrowing, value: int, low: int, high: int) -> Generator[Ask, Reply, tuple[int, Outcome]]:
    """The outcome at `value`, or that of the nearest value that can be tried where that one never can."""
    outcome = yield from task.observe(value, Purpose.THRESHOLD)
    if task.variable.levels:
        return value, outcome
    for step in NEIGHBOURS:
        if not isinstance(outcome, Unresolved) or outcome.again:
            break
        if low < value + step < high:
            near = yield from task.observe(value + step, Purpose.THRESHOLD)
            if not isinstance(near, Unresolved):
                return value + step, near
    return value, outcome


def _other(outcome: Outcome) -> str:
    if isinstance(outcome, Failed):
        return f"another error ({outcome.failure.signature})"
    return f"no answer ({outcome.reason})" if isinstance(outcome, Unresolved) else "nothing"


def _why_narrow(low: int, high: int, variable: Variable) -> str:
    if high - low == 1:
        return "exact"
    return "no level between" if variable.levels else f"within {100 * (high - low) / max(low, 1):.1f} %"


def crash_ratio(ledger: Ledger, target: frozenset[Signature], kind: Kind) -> int:
    """What a failing probe costs above a passing one, from this search's own answers; 0 where both cost the same.

    A launch variable pays a launch either way. A request variable pays one only if the target kills the server.
    """
    answers = [a for group in ledger.answers.values() for a in group]
    crashed = any(shows(a.outcome, target) and (a.server is None or not a.server.alive) for a in answers)
    if kind is Kind.LAUNCH or not crashed:
        return 0
    launched = [a.cost.seconds for a in answers if a.cost.launches == 1 and isinstance(a.outcome, Passed)]
    warm = sorted(a.cost.seconds for a in answers if a.cost.launches == 0 and isinstance(a.outcome, Passed))
    if not launched or not warm:
        return 16  # unknown on both sides: a launch takes minutes, a request seconds
    return rounded_ratio(max(launched), warm[len(warm) // 2])


def _chooser(variable: Variable, precision: float, ratio: int) -> Callable[[int, int], int | None]:
    if not variable.levels:
        return lambda low, high: probe(low, high, precision, ratio)

    def by_level(low: int, high: int) -> int | None:
        between = [level for level in sorted(variable.levels) if low < level < high]
        steps = level_probe(len(between) + 1, ratio)
        return None if steps is None else between[steps - 1]

    return by_level


def _bands(task: Narrowing, low: int, high: int) -> Generator[Ask, Reply, tuple[int, ...]]:
    """Values on the wrong side: one sample above and one below, where the narrowing itself has not looked already."""
    variable = task.variable
    bottom, top = variable.minimal, variable.production
    if not (isinstance(bottom, int) and isinstance(top, int)):
        raise TypeError(f"{variable.name} is not ordinal")
    exceptions: list[int] = []
    for left, right, expect_target in ((bottom, low, False), (high, top, True)):
        value = _sample(task, left, right)
        if value is None:
            continue
        outcome = yield from task.observe(value, Purpose.BAND)
        if (expect_target and isinstance(outcome, Passed)) or (not expect_target and shows(outcome, task.target)):
            exceptions.append(value)
    return tuple(exceptions)


def _sample(task: Narrowing, left: int, right: int) -> int | None:
    """A value in the middle of the open interval; None where there is none or its middle half was looked at already."""
    near, far = (max(left, 1) * (right / max(left, 1)) ** part for part in (0.25, 0.75))
    for configuration in task.ledger.answers:
        value = configuration[task.variable.name]
        if isinstance(value, int) and near <= value <= far and configuration == task.at(value):
            return None
    if task.variable.levels:
        levels = [level for level in sorted(task.variable.levels) if left < level < right]
        return levels[len(levels) // 2] if levels else None
    if narrow_enough(left, right, task.precision):
        return None
    return min(max(round(math.sqrt(max(left, 1) * right)), left + 1), right - 1)
