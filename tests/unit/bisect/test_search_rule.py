"""The search against simulated worlds, compared with brute force over what those worlds really do."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.bisect import SearchOptions, plan, search
from repro.domain.failure import Failure, Family, Signature
from repro.domain.finding import ResultKind, SearchResult
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.stage import Stage
from repro.domain.trial import Answer, Ask, Cost, Fresh, Purpose, Reply, ServerFacts, Stop, Trial
from repro.domain.variable import Configuration, Kind, Value, Variable, minimal_configuration, production_configuration

TARGET = Failure(Stage.SERVING, Family.ILLEGAL_MEMORY_ACCESS)
DEFAULT = SearchOptions()
FOREIGN = Failure(Stage.ENGINE_INIT, Family.KERNEL_COMPILE)


@dataclass(frozen=True)
class Cause:
    """Fails as `failure` when every named variable is at or above its value (nominal: equal to production's)."""

    failure: Failure
    needs: tuple[tuple[str, Value], ...]
    unless: str = ""

    def active(self, configuration: Configuration, variables: tuple[Variable, ...]) -> bool:
        by_name = {v.name: v for v in variables}
        if self.unless and configuration[self.unless] == by_name[self.unless].production:
            return False
        for name, value in self.needs:
            now = configuration[name]
            if by_name[name].ordinal:
                assert isinstance(now, int)
                assert isinstance(value, int)
                if now < value:
                    return False
            elif now != value:
                return False
        return True


@dataclass
class World:
    """One server at a time; a failure kills it. Causes are looked at in order: the earlier one masks the later."""

    variables: tuple[Variable, ...]
    causes: tuple[Cause, ...]
    kills: bool = True
    launches: int = 0
    log: list[tuple[Trial, Outcome]] = field(default_factory=list)
    running: object = None
    served: int = 0

    def outcome(self, configuration: Configuration) -> Outcome:
        for cause in self.causes:
            if cause.active(configuration, self.variables):
                return Failed(cause.failure)
        return Passed()

    def answer(self, trial: Trial) -> Answer:
        launch_names = {v.name for v in self.variables if v.kind is Kind.LAUNCH}
        launch = tuple((k, v) for k, v in trial.configuration.values if k in launch_names)
        new = trial.fresh is Fresh.REQUIRED or self.running != launch
        if new:
            self.launches += 1
            self.served = 0
        outcome = self.outcome(trial.configuration)
        self.log.append((trial, outcome))
        alive = isinstance(outcome, Passed) or not self.kills
        self.running = launch if alive else None
        before, self.served = self.served, self.served + 1
        return Answer(
            trial.id,
            outcome,
            missed=0 if isinstance(outcome, Passed) else 1,
            sent=1,
            cost=Cost(int(new), 100.0 if new else 1.0),
            server=ServerFacts("s", str(launch), before, alive),
        )

    def run(self, options: SearchOptions = DEFAULT) -> SearchResult:
        return drive(self, options)


def drive(world: World, options: SearchOptions = DEFAULT, stop_after: int | None = None) -> SearchResult:
    running = search(world.variables, options)
    reply: Reply
    try:
        ask = next(running)
        while True:
            if stop_after is not None and len(world.log) >= stop_after:
                reply = Stop("budget")
            else:
                reply = tuple(world.answer(t) for t in ask.trials)
            ask = running.send(reply)
    except StopIteration as end:
        result = end.value
        assert isinstance(result, SearchResult)
        return result


def whole(value: Value) -> int:
    assert isinstance(value, int)
    return value


def flags(count: int) -> tuple[Variable, ...]:
    return tuple(Variable(f"--flag-{i}", Kind.LAUNCH, None, "on") for i in range(count))


INPUT = Variable("input_tokens", Kind.REQUEST, 128, 60000, ordinal=True)
OUTPUT = Variable("max_tokens", Kind.REQUEST, 16, 512, ordinal=True)
CONCURRENCY = Variable("concurrency", Kind.REQUEST, 1, 64, ordinal=True)
BATCHED = Variable("--max-num-batched-tokens", Kind.LAUNCH, 2048, 32768, ordinal=True)
ALL = (INPUT, OUTPUT, CONCURRENCY, *flags(4), BATCHED)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """One to three needs for the target; sometimes a foreign error on another variable that something suppresses."""
    variables = tuple(draw(st.permutations(ALL)))[: draw(st.integers(1, len(ALL)))]
    members = draw(st.lists(st.sampled_from(variables), min_size=1, max_size=3, unique=True))
    needs: list[tuple[str, Value]] = []
    for variable in members:
        if variable.ordinal:
            assert isinstance(variable.minimal, int)
            assert isinstance(variable.production, int)
            needs.append((variable.name, draw(st.integers(variable.minimal + 1, variable.production))))
        else:
            needs.append((variable.name, variable.production))
    causes = [Cause(TARGET, tuple(needs))]
    others = [v for v in variables if v not in members]
    if len(others) >= 2 and draw(st.booleans()):
        foreign, suppressor = draw(st.permutations(others))[:2]
        causes.insert(0, Cause(FOREIGN, ((foreign.name, foreign.production),), unless=suppressor.name))
    return World(variables, tuple(causes), kills=draw(st.booleans()))


@settings(max_examples=400, deadline=None)
@given(worlds(), st.sampled_from([0.05, 0.0, 0.2]))
def test_the_finding_is_the_cause_with_its_threshold_inside_the_bracket(world: World, precision: float) -> None:
    result = world.run(SearchOptions(precision))
    assert result.kind is ResultKind.FOUND, result.note
    (finding,) = result.findings
    cause = world.causes[-1]
    assert finding.signature == TARGET.signature
    assert {m.variable for m in finding.members} == {name for name, _ in cause.needs}
    for member in finding.members:
        threshold = dict(cause.needs)[member.variable]
        if isinstance(threshold, int) and not isinstance(threshold, bool):
            low, high = member.bracket.passing, member.bracket.failing
            assert isinstance(low, int)
            assert isinstance(high, int)
            assert low < threshold <= high
            assert high - low == 1 or (precision > 0 and high <= max(low, 1) * (1 + precision))
        assert member.bracket.exceptions == ()
    assert len(finding.proof) == len(finding.members)
    assert all(pair.holds and not pair.masked for pair in finding.proof)


@settings(max_examples=300, deadline=None)
@given(worlds(), st.sampled_from([0.05, 0.0]))
def test_a_search_never_costs_more_than_its_plan(world: World, precision: float) -> None:
    options = SearchOptions(precision)
    bound = plan(world.variables, options)
    world.run(options)
    assert world.launches <= bound.most_launches
    assert len(world.log) <= bound.most_trials


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_launches_are_those_that_the_rule_demands(world: World) -> None:
    """Launch configurations visited + crashes + repetitions of ends and baselines + proofs, and no more."""
    world.run()
    launch_names = [v.name for v in world.variables if v.kind is Kind.LAUNCH]
    visited = {tuple(t.configuration[n] for n in launch_names) for t, _ in world.log}
    crashes = sum(world.kills and isinstance(o, Failed) for _, o in world.log)
    repeated = sum(t.purpose in (Purpose.BASELINE_AGAIN, Purpose.PROOF) for t, _ in world.log)
    ends = sum(t.fresh is Fresh.REQUIRED and t.purpose is not Purpose.PROOF for t, _ in world.log)
    # With one server at a time a launch configuration that was left must be started again: by each variable that is
    # taken away, by each launch probe of a threshold, and once when a request threshold begins.
    dear = {Purpose.REDUCE}
    if BATCHED in world.variables:
        dear |= {Purpose.THRESHOLD, Purpose.BAND}
    left = sum(t.purpose in dear for t, _ in world.log)
    begins = len({t.parent for t, _ in world.log if t.purpose in (Purpose.THRESHOLD, Purpose.BAND)})
    assert world.launches <= len(visited) + crashes + repeated + ends + left + begins


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_no_trial_is_ever_derived_from_a_foreign_error(world: World) -> None:
    """Nobody walks to another bug: the parent of a trial passed, or showed the target."""
    world.run()
    outcomes: dict[str, Outcome] = {}
    for trial, outcome in world.log:
        if trial.parent is not None:
            parent = outcomes[trial.parent]
            assert isinstance(parent, Passed) or (
                isinstance(parent, Failed) and parent.failure.signature == TARGET.signature
            )
        outcomes[trial.id] = outcome


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_a_ladder_trial_differs_from_its_parent_in_one_variable(world: World) -> None:
    world.run()
    by_id = {t.id: t for t, _ in world.log}
    assert len(by_id) == len(world.log)
    for trial, _ in world.log:
        if trial.parent is not None:
            changed = trial.configuration.changed_from(by_id[trial.parent].configuration)
            assert len(changed) <= 1, trial.purpose


@settings(max_examples=100, deadline=None)
@given(worlds(), st.integers(0, 30))
def test_a_stop_anywhere_ends_in_a_valid_weaker_result(world: World, stop_after: int) -> None:
    result = drive(world, stop_after=stop_after)
    if len(world.log) < stop_after or result.kind is ResultKind.FOUND:
        assert "budget" not in result.note
        assert result.kind is ResultKind.FOUND
    else:
        assert result.kind is ResultKind.INCONCLUSIVE
        assert "budget" in result.note
        assert result.still_possible
        assert all(not f.proven for f in result.findings)


def test_production_that_passes_costs_one_launch_and_is_not_reproduced() -> None:
    world = World(ALL, ())
    result = world.run()
    assert result.kind is ResultKind.NOT_REPRODUCED
    assert "5 of 5" in result.note
    assert world.launches == 1


def test_a_failing_minimal_end_is_a_result_and_is_repeated() -> None:
    world = World(ALL, (Cause(FOREIGN, ()),))
    result = world.run()
    assert result.kind is ResultKind.MINIMAL_FAILS
    (finding,) = result.findings
    assert (finding.failed.count, finding.failed.of) == (2, 2)
    assert "as production does" in result.note
    assert world.launches == 4


def test_a_claim_that_production_does_not_keep_is_said_before_anything_else_is_launched() -> None:
    world = World(ALL, (Cause(TARGET, (("input_tokens", 500),)),))
    claim = frozenset({Signature(Stage.ENGINE_INIT, Family.OOM_GPU)})
    result = world.run(SearchOptions(claimed=claim))
    assert result.kind is ResultKind.END_NOT_AS_CLAIMED
    assert "serving/illegal_memory_access" in result.note
    assert world.launches == 2


def test_the_foreign_error_is_set_aside_and_the_baseline_is_tried_again() -> None:
    variables = (INPUT, *flags(3))
    causes = (Cause(FOREIGN, (("--flag-0", "on"),), unless="--flag-2"), Cause(TARGET, (("--flag-1", "on"),)))
    world = World(variables, causes)
    result = world.run()
    assert result.kind is ResultKind.FOUND
    assert [m.variable for m in result.findings[0].members] == ["--flag-1"]
    assert [(s.variable, s.signature) for s in result.set_aside] == [("--flag-0", FOREIGN.signature)]
    assert Purpose.BASELINE_AGAIN in [t.purpose for t, _ in world.log]


def test_a_set_aside_variable_that_is_the_culprits_partner_is_found_from_above() -> None:
    """--flag-0 fails otherwise unless --flag-2 is there, and the target needs it: only its second turn shows that."""
    variables = (*flags(3),)
    causes = (Cause(FOREIGN, (("--flag-0", "on"),), unless="--flag-2"), Cause(TARGET, (("--flag-0", "on"),)))
    world = World(variables, causes)
    result = world.run()
    assert {m.variable for m in result.findings[0].members} == {"--flag-0", "--flag-2"}
    # Without --flag-2 the foreign error comes: the pair shows that, and it is said.
    assert [(p.variable, p.masked) for p in result.findings[0].proof if p.masked] == [("--flag-2", True)]
    assert result.kind is ResultKind.INCONCLUSIVE
    assert "masked" in result.note


@pytest.mark.parametrize(
    ("then", "said"),
    [(Failed(FOREIGN), "passes no more, so the scene has moved"), (Unresolved("Docker is down"), "Docker is down")],
)
def test_a_lost_baseline_is_no_finding(then: Outcome, said: str) -> None:
    """The baseline passes at first and not after the foreign error: the machine has changed under the search."""

    class Moving(World):
        def outcome(self, configuration: Configuration) -> Outcome:
            moved = any(isinstance(o, Failed) and o.failure == FOREIGN for _, o in self.log)
            return then if moved else super().outcome(configuration)

    variables = (INPUT, *flags(2))
    foreign = Cause(FOREIGN, (("--flag-0", "on"),), unless="--flag-1")
    world = Moving(variables, (foreign, Cause(TARGET, (("--flag-1", "on"),))))
    result = world.run()
    assert result.kind is ResultKind.INCONCLUSIVE
    assert result.findings == ()
    assert result.set_aside == ()
    assert said in result.note
    assert "--flag-0" in result.still_possible


def test_a_contradiction_is_told_with_its_counts_and_histories() -> None:
    """Fails only on a server that has served before: the warm ladder step fails, the fresh proof passes."""

    class Aging(World):
        def outcome(self, configuration: Configuration) -> Outcome:
            production = production_configuration(self.variables)
            old = self.served >= 5 and configuration[INPUT.name] != INPUT.minimal
            return Failed(TARGET) if configuration == production or old else Passed()

    result = Aging((INPUT, *flags(1)), ()).run()
    assert result.kind is ResultKind.INCONCLUSIVE
    assert "had served" in result.note


def test_a_band_is_told_as_an_exception() -> None:
    """Fails from 1000 to 4000 and again from 50000 on: the sample above the bracket falls into the gap and passes."""

    class Banded(World):
        def outcome(self, configuration: Configuration) -> Outcome:
            value = configuration[INPUT.name]
            assert isinstance(value, int)
            return Failed(TARGET) if 1000 <= value < 4000 or value >= 50000 else Passed()

    world = Banded((INPUT,), ())
    result = world.run()
    (member,) = result.findings[0].members
    low, high = member.bracket.passing, member.bracket.failing
    assert isinstance(low, int)
    assert isinstance(high, int)
    minimal = minimal_configuration(world.variables)
    assert isinstance(world.outcome(minimal.with_value(INPUT.name, low)), Passed)
    assert isinstance(world.outcome(minimal.with_value(INPUT.name, high)), Failed)
    assert member.bracket.exceptions
    for value in member.bracket.exceptions:
        assert isinstance(value, int)
        outcome = world.outcome(minimal.with_value(INPUT.name, value))
        assert isinstance(outcome, Passed if value > high else Failed)


def test_another_error_between_leaves_the_bracket_open_and_says_so() -> None:
    """From 2000 to 5000 another error hides where the target begins: it is not told narrower than it is known."""
    world = World((INPUT,), (Cause(TARGET, (("input_tokens", 5000),)), Cause(FOREIGN, (("input_tokens", 2000),))))
    result = world.run()
    assert result.kind is ResultKind.FOUND
    (member,) = result.findings[0].members
    low, high = whole(member.bracket.passing), whole(member.bracket.failing)
    assert member.bracket.open
    assert low < 2000
    assert 5000 <= high <= 5000 * 1.05
    assert "another error (engine_init/kernel_compile)" in member.bracket.reason
    assert "not narrowed" in result.note


def test_lengths_that_cannot_be_built_are_stepped_around() -> None:
    class Gappy(World):
        def outcome(self, configuration: Configuration) -> Outcome:
            value = configuration[INPUT.name]
            assert isinstance(value, int)
            if value not in (INPUT.minimal, INPUT.production) and value % 3 == 0:
                return Unresolved("no prompt of exactly this length", again=False)
            return super().outcome(configuration)

    result = Gappy((INPUT,), (Cause(TARGET, (("input_tokens", 5000),)),)).run()
    assert result.kind is ResultKind.FOUND
    (member,) = result.findings[0].members
    low, high = whole(member.bracket.passing), whole(member.bracket.failing)
    assert not member.bracket.open
    assert low < 5000 <= high <= low * 1.05


def test_passes_that_were_not_seen_are_not_counted() -> None:
    class Once(World):
        def outcome(self, configuration: Configuration) -> Outcome:
            return Passed() if not self.log else Unresolved("another job took the GPUs")

    result = Once(ALL, ()).run()
    assert result.kind is ResultKind.INCONCLUSIVE
    assert "1 of 5 times" in result.note


def test_what_production_showed_before_a_contradiction_is_kept() -> None:
    class Flaky(World):
        def outcome(self, configuration: Configuration) -> Outcome:
            return Passed() if self.log else Failed(TARGET)

    result = Flaky(ALL, ()).run()
    assert result.kind is ResultKind.INCONCLUSIVE
    assert result.target == (TARGET.signature,)


def test_refusals_of_different_kinds_are_different_errors() -> None:
    """One bug answers 500 and another 400: the search must not take one for the other."""
    internal = Failure(Stage.SERVING, Family.HTTP_ERROR, root_template="HTTP 500")
    refused = Failure(Stage.SERVING, Family.HTTP_ERROR, root_template="HTTP 400")
    causes = (Cause(internal, (("--flag-1", "on"),)), Cause(refused, (("input_tokens", 300),), unless="--flag-0"))
    result = World((INPUT, *flags(2)), causes, kills=False).run()
    assert result.kind is ResultKind.FOUND
    assert [m.variable for m in result.findings[0].members] == ["--flag-1"]


def test_an_end_that_cannot_be_tested_is_inconclusive() -> None:
    class Blind(World):
        def outcome(self, configuration: Configuration) -> Outcome:
            return Unresolved("another job took the GPUs")

    result = Blind(ALL, ()).run()
    assert result.kind is ResultKind.INCONCLUSIVE
    assert "another job took the GPUs" in result.note


def test_levels_are_the_only_values_between() -> None:
    variable = Variable("concurrency", Kind.REQUEST, 1, 64, ordinal=True, levels=(1, 4, 16, 64))
    world = World((variable,), (Cause(TARGET, (("concurrency", 10),)),))
    result = world.run()
    (member,) = result.findings[0].members
    assert (member.bracket.passing, member.bracket.failing) == (4, 16)
    assert {t.configuration["concurrency"] for t, _ in world.log} <= {1, 4, 16, 64}


def test_the_same_answers_give_the_same_asks() -> None:
    def asks() -> list[Ask]:
        world, seen = World(ALL, (Cause(TARGET, (("input_tokens", 4000), ("--flag-2", "on"))),)), []
        running = search(world.variables)
        try:
            ask = next(running)
            while True:
                seen.append(ask)
                ask = running.send(tuple(world.answer(t) for t in ask.trials))
        except StopIteration:
            return seen

    assert asks() == asks()


@pytest.mark.parametrize("variables", [(), (INPUT, INPUT)])
def test_a_search_over_nothing_or_twins_is_refused(variables: tuple[Variable, ...]) -> None:
    with pytest.raises(ValueError, match="at least one variable"):
        search(variables)
