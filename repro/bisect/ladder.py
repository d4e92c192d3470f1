"""The ladder: one variable more at a time on top of the last stable baseline, and back to it when the error changes."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from repro.bisect.ledger import Contradiction, shows
from repro.bisect.state import State
from repro.domain.finding import SetAside
from repro.domain.outcome import Failed, Passed, Unresolved
from repro.domain.trial import Ask, Purpose, Reply
from repro.domain.variable import Configuration, Variable


class BaselineLost(Exception):
    """A stable baseline passes no more, or cannot be tried: nothing found after this would mean anything."""


def climb(state: State, variables: Iterable[Variable], purpose: Purpose) -> Generator[Ask, Reply, Configuration | None]:
    """Adds `variables` one by one; returns the first configuration that shows the target, or None.

    Raises `BaselineLost` when the baseline does not pass after a foreign error.
    """
    for variable in variables:
        candidate = state.baseline.with_value(variable.name, variable.production)
        if candidate in state.ledger.answers and candidate != state.production:
            continue  # tried on this very baseline before: the same answer would come again
        parent = state.ledger.first_id[state.baseline]
        reason = f"stable/{len(state.stable) - 1} + {variable.name}"
        answer = yield from state.ledger.consider(candidate, parent, purpose, reason)
        if not isinstance(answer.outcome, Unresolved):
            state.tried.add(variable.name)
            state.untested.pop(variable.name, None)
        match answer.outcome:
            case Passed():
                state.stable.append(candidate)
                state.set_aside.pop(variable.name, None)
            case Failed() if shows(answer.outcome, state.target):
                state.set_aside.pop(variable.name, None)
                return candidate
            case Failed(failure):
                state.set_aside[variable.name] = SetAside(
                    variable.name,
                    failure.signature,
                    answer.trial_id,
                    f"failed as {failure.signature}, which is not what production shows",
                )
                yield from _baseline_still_passes(state, variable)
            case Unresolved(why):
                state.untested[variable.name] = why
    return None


def _baseline_still_passes(state: State, after: Variable) -> Generator[Ask, Reply, None]:
    baseline, tag = state.baseline, f"stable/{len(state.stable) - 1}"
    reason = f"back to {tag}: does it still pass after {after.name} failed otherwise?"
    first = state.ledger.first_id[baseline]
    why = ""
    try:
        answer = yield from state.ledger.repeat(baseline, first, Purpose.BASELINE_AGAIN, reason)
    except Contradiction as contradiction:
        why = f"{tag} passes no more, so the scene has moved: {contradiction}"
    else:
        if isinstance(answer.outcome, Unresolved):
            why = f"{tag} could not be tried again: {answer.outcome.reason}"
    if why:
        # Seen on a scene that is no longer the same, the foreign error is no finding either.
        del state.set_aside[after.name]
        state.tried.discard(after.name)
        raise BaselineLost(why)
