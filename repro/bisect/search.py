"""The search from both ends to a proven finding, as a generator: the rule of the house, step by step.

    production fails (target)  >  minimal passes (stable/0)  >  ladder  >  reduce  >  threshold  >  proof
                                                                  |
                             another error: set aside, back to the last stable baseline

A contradiction between two answers to one configuration ends this search as inconclusive, with the counts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace

from repro.bisect.ends import DEAR_TRIES, try_end
from repro.bisect.ladder import BaselineLost, climb
from repro.bisect.ledger import Contradiction, Ledger, Stopped
from repro.bisect.proof import prove, sides
from repro.bisect.reduce import above, below
from repro.bisect.state import State
from repro.bisect.threshold import Narrowing, narrow
from repro.domain.failure import Signature
from repro.domain.finding import Bracket, Finding, Member, ResultKind, SearchResult, Tally
from repro.domain.outcome import Failed, Passed, Unresolved
from repro.domain.trial import Answer, Ask, Purpose, Reply, Search
from repro.domain.variable import Configuration, Variable


@dataclass(frozen=True)
class SearchOptions:
    """`precision`: width of a bracket as a fraction of its passing value, 0 for neighbours.

    `claimed`: the signatures that the user says production shows; empty takes whatever it shows.
    """

    precision: float = 0.05
    claimed: frozenset[Signature] = frozenset()


def search(variables: tuple[Variable, ...], options: SearchOptions = SearchOptions()) -> Search:
    """The search over `variables` in their order. Raises ValueError for none, or for two of one name."""
    if not variables or len({v.name for v in variables}) != len(variables):
        raise ValueError("a search needs at least one variable and every name once")
    return _guarded(State(variables, options.precision), options)


def _guarded(state: State, options: SearchOptions) -> Search:
    try:
        result = yield from _steps(state, options)
    except Stopped as stop:
        return _result(state, ResultKind.INCONCLUSIVE, f"ended before its time: {stop}")
    except (Contradiction, BaselineLost) as reason:
        return _result(state, ResultKind.INCONCLUSIVE, str(reason))
    return result


def _steps(state: State, options: SearchOptions) -> Search:
    ended = yield from _production_end(state, options)
    if ended is not None:
        return ended
    ended = yield from _minimal_end(state)
    if ended is not None:
        return ended
    failing = yield from _first_failing(state)
    yield from _prove_finding(state, failing)
    if state.finding is not None and state.finding.proven:
        return _result(state, ResultKind.FOUND, _remarks(state))
    return _result(state, ResultKind.INCONCLUSIVE, _why_unproven(state))


def _production_end(state: State, options: SearchOptions) -> Generator[Ask, Reply, SearchResult | None]:
    answers = yield from try_end(state.ledger, state.production, None, Purpose.PRODUCTION_END)
    seen = _shown_by(state.ledger, state.production)
    if not seen:
        passed, of = state.ledger.passes(state.production)
        if of < DEAR_TRIES:
            why = f"production could be tested {of} of {len(answers)} times: {_unresolved(answers)}"
            return _result(state, ResultKind.INCONCLUSIVE, why)
        return _result(state, ResultKind.NOT_REPRODUCED, f"production passed {passed} of {of} times")
    wanted = frozenset(s for s in seen if not options.claimed or any(s.answers(c) for c in options.claimed))
    state.target = wanted or seen
    if not wanted:
        shown = ", ".join(sorted(map(str, seen)))
        return _result(state, ResultKind.END_NOT_AS_CLAIMED, f"production fails, but as {shown}")
    return None


def _shown_by(ledger: Ledger, configuration: Configuration) -> frozenset[Signature]:
    outcomes = (a.outcome for a in ledger.answers.get(configuration, ()))
    return frozenset(o.failure.signature for o in outcomes if isinstance(o, Failed))


def _minimal_end(state: State) -> Generator[Ask, Reply, SearchResult | None]:
    answers = yield from try_end(state.ledger, state.minimal, None, Purpose.MINIMAL_END)
    failures = [a.outcome.failure for a in answers if isinstance(a.outcome, Failed)]
    if failures:
        signature = failures[0].signature
        alike = state.ledger.tally_target([state.minimal], frozenset({signature}))
        state.finding = Finding(signature, (), alike, Tally(0, 0))
        same = "as production does" if signature in state.target else "otherwise than production"
        return _result(
            state, ResultKind.MINIMAL_FAILS, f"the minimal command fails by itself, {same}; no flag is to blame"
        )
    if not any(isinstance(a.outcome, Passed) for a in answers):
        return _result(
            state, ResultKind.INCONCLUSIVE, f"the minimal command could not be tested: {_unresolved(answers)}"
        )
    state.stable.append(state.minimal)
    return None


def _first_failing(state: State) -> Generator[Ask, Reply, Configuration]:
    """The 1-minimal failing configuration: from the ladder, else from the set-aside ones, else from above."""
    failing = yield from climb(state, state.variables, Purpose.LADDER)
    if failing is None:
        again = tuple(v for v in state.variables if v.name in state.set_aside)
        failing = yield from climb(state, again, Purpose.SET_ASIDE_AGAIN)
    if failing is None:
        state.failing = state.production
        reduced = yield from above(state)
        return reduced
    state.failing = failing
    (culprit,) = failing.changed_from(state.baseline)
    reduced = yield from below(state, failing, state.named(culprit))
    return reduced


def _prove_finding(state: State, failing: Configuration) -> Generator[Ask, Reply, None]:
    """Brackets, then proof. The finding is kept after each step, so that a stop leaves what was known."""
    raised = state.raised(failing)
    members = {v.name: Member(v.name, v.kind, Bracket(v.minimal, v.production, _untried(v))) for v in raised}
    _keep(state, failing, tuple(members.values()))
    for variable in raised:
        if variable.ordinal:
            task = Narrowing(state.ledger, state.target, variable, failing, state.precision)
            bracket = yield from narrow(task)
            members[variable.name] = Member(variable.name, variable.kind, bracket)
            _keep(state, failing, tuple(members.values()))
    pairs = yield from prove(state, failing, tuple(members.values()))
    _keep(state, failing, tuple(members.values()))
    if state.finding is not None:
        state.finding = replace(state.finding, proof=pairs)


def _untried(variable: Variable) -> str:
    return "not narrowed" if variable.ordinal else "no value between"


def _keep(state: State, failing: Configuration, members: tuple[Member, ...]) -> None:
    bad = [failing, *(sides(failing, m)[0] for m in members)]
    good = [sides(failing, m)[1] for m in members]
    seen = [
        a.outcome.failure.signature
        for a in state.ledger.answers[failing]
        if isinstance(a.outcome, Failed) and a.outcome.failure.signature in state.target
    ]
    state.finding = Finding(
        signature=seen[0],
        members=members,
        failed=state.ledger.tally_target(bad, state.target),
        passed=state.ledger.tally_passed(good),
        alone=failing != state.production or len(members) == 1,
    )


def _why_unproven(state: State) -> str:
    if state.finding is None:
        return "nothing was found"
    outcomes = {a.trial_id: a.outcome for group in state.ledger.answers.values() for a in group}
    masked: list[str] = []
    untested: list[str] = []
    broken: list[str] = []
    for pair in state.finding.proof:
        both = (outcomes[pair.failing_trial], outcomes[pair.passing_trial])
        if pair.masked:
            masked.append(pair.variable)
        elif any(isinstance(o, Unresolved) for o in both):
            untested.append(pair.variable)
        elif not pair.holds:
            broken.append(pair.variable)
    parts = []
    if masked:
        parts.append(f"masked for {', '.join(masked)}: the passing side fails with another error")
    if untested:
        parts.append(f"the pair of {', '.join(untested)} could not be tested on fresh servers")
    if broken:
        parts.append(f"the pair of {', '.join(broken)} did not come out again on fresh servers")
    return "found but not proven: " + "; ".join(parts)


def _remarks(state: State) -> str:
    """What a proven finding still leaves open."""
    members = state.finding.members if state.finding else ()
    parts = [f"the threshold of {m.variable} is not narrowed: {m.bracket.reason}" for m in members if m.bracket.open]
    parts += [f"{name} could not be tried ({why})" for name, why in state.untested.items()]
    return "; ".join(parts)


def _unresolved(answers: Iterable[Answer]) -> str:
    return "; ".join(dict.fromkeys(a.outcome.reason for a in answers if isinstance(a.outcome, Unresolved)))


def _result(state: State, kind: ResultKind, note: str) -> SearchResult:
    return SearchResult(
        kind=kind,
        # A search that ended among the tries of production has not settled its target, but has seen it.
        target=tuple(sorted(state.target or _shown_by(state.ledger, state.production), key=str)),
        findings=(state.finding,) if state.finding else (),
        set_aside=tuple(state.set_aside.values()),
        stable=state.tags(),
        note=note,
        still_possible=state.still_possible() if kind is ResultKind.INCONCLUSIVE else (),
    )
