"""Takes variables away from a configuration that shows the target while the target remains."""

from __future__ import annotations

from collections.abc import Generator, Iterable

from repro.bisect.ledger import shows
from repro.bisect.state import State
from repro.domain.trial import Ask, Purpose, Reply
from repro.domain.variable import Configuration, Variable


def below(state: State, failing: Configuration, culprit: Variable) -> Generator[Ask, Reply, Configuration]:
    """From baseline + `culprit` down to a 1-minimal failing set that holds `culprit`.

    The culprit alone on the minimal configuration is tried first: most faults have one cause.
    """
    alone = state.minimal.with_value(culprit.name, culprit.production)
    if failing == alone:
        return failing
    parent = state.ledger.first_id[state.minimal]
    answer = yield from state.ledger.consider(alone, parent, Purpose.REDUCE, f"{culprit.name} alone on the minimal end")
    if shows(answer.outcome, state.target):
        state.failing = alone
        return alone
    others = [v for v in state.raised(failing) if v != culprit]
    found = yield from _without(state, failing, reversed(others))
    return found


def above(state: State) -> Generator[Ask, Reply, Configuration]:
    """From production down, when no ladder step showed the target. What was set aside goes last."""
    dull = [v for v in reversed(state.variables) if v.name not in state.set_aside]
    foreign = [v for v in reversed(state.variables) if v.name in state.set_aside]
    found = yield from _without(state, state.production, [*dull, *foreign])
    return found


def _without(
    state: State, failing: Configuration, candidates: Iterable[Variable]
) -> Generator[Ask, Reply, Configuration]:
    """A pass, another signature or an unresolved trial keeps the variable."""
    for variable in candidates:
        smaller = failing.with_value(variable.name, variable.minimal)
        parent = state.ledger.first_id[failing]
        answer = yield from state.ledger.consider(smaller, parent, Purpose.REDUCE, f"without {variable.name}")
        if shows(answer.outcome, state.target):
            state.failing = failing = smaller
    return failing
