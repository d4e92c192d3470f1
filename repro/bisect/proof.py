"""The proof: for each member a pair of trials on fresh servers that differ in exactly that member."""

from __future__ import annotations

from collections.abc import Generator

from repro.bisect.ledger import shows
from repro.bisect.state import State
from repro.domain.finding import Member, ProofPair
from repro.domain.outcome import Failed, Passed
from repro.domain.trial import Answer, Ask, Fresh, Purpose, Reply
from repro.domain.variable import Configuration


def sides(failing: Configuration, member: Member) -> tuple[Configuration, Configuration]:
    """(failing side, passing side) of a member's pair, the other members at the values of `failing`."""
    return (
        failing.with_value(member.variable, member.bracket.failing),
        failing.with_value(member.variable, member.bracket.passing),
    )


def prove(
    state: State, failing: Configuration, members: tuple[Member, ...]
) -> Generator[Ask, Reply, tuple[ProofPair, ...]]:
    """One pair a member; members that share a failing side share its trial. Every trial starts a fresh server."""
    wanted: dict[Configuration, str | None] = {}
    for member in members:
        bad, good = sides(failing, member)
        wanted.setdefault(bad, state.ledger.first_id[bad])
        wanted.setdefault(good, state.ledger.first_id[bad])
    names = ", ".join(m.variable for m in members)
    answers = yield from state.ledger.ask(
        wanted.items(), Purpose.PROOF, f"proof of {names} on fresh servers", Fresh.REQUIRED
    )
    by_configuration: dict[Configuration, Answer] = dict(zip(wanted, answers, strict=True))
    return tuple(_pair(state, member, by_configuration, failing) for member in members)


def _pair(state: State, member: Member, answers: dict[Configuration, Answer], failing: Configuration) -> ProofPair:
    bad, good = (answers[side] for side in sides(failing, member))
    return ProofPair(
        variable=member.variable,
        passing_trial=good.trial_id,
        failing_trial=bad.trial_id,
        holds=shows(bad.outcome, state.target) and isinstance(good.outcome, Passed),
        masked=isinstance(good.outcome, Failed) and not shows(good.outcome, state.target),
    )
