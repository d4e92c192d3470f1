"""Narrows the threshold of one ordinal member of a failing set, then looks for bands above and below it."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

from repro.bisect.ledger import Ledger, shows
from repro.bisect.split import level_probe, narrow_enough, probe, rounded_ratio
from repro.domain.failure import Signature
from repro.domain.finding import Bracket
from repro.domain.outcome import Outcome, Passed
from repro.domain.trial import Ask, Purpose, Reply
from repro.domain.variable import Configuration, Kind, Variable


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
    low, high = variable.minimal, variable.production
    next_value = _chooser(variable, task.precision, crash_ratio(task.ledger, task.target, variable.kind))
    reason = ""
    while not reason:
        value = next_value(low, high)
        if value is None:
            reason = _why_narrow(low, high, variable)
            break
        outcome = yield from task.observe(value, Purpose.THRESHOLD)
        if shows(outcome, task.target):
            high = value
        elif isinstance(outcome, Passed):
            low = value
        else:
            # Neither the target nor a pass: another fault hides what happens here, so nothing is concluded from it.
            reason = f"something else stood in the way at {value}"
    exceptions = yield from _bands(task, low, high)
    return Bracket(low, high, reason, exceptions)


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
    """A value in the open interval, or None where there is none or the narrowing has looked inside already."""
    for configuration in task.ledger.answers:
        value = configuration[task.variable.name]
        if isinstance(value, int) and left < value < right and configuration == task.at(value):
            return None
    if task.variable.levels:
        levels = [level for level in sorted(task.variable.levels) if left < level < right]
        return levels[len(levels) // 2] if levels else None
    if narrow_enough(left, right, task.precision):
        return None
    return min(max(round(math.sqrt(max(left, 1) * right)), left + 1), right - 1)
