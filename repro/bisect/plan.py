"""What a search can cost, before it begins: a bound that is never exceeded, and what single culprits would cost.

The bound is arithmetic over the steps of the search. Tries that were unresolved for reasons outside the configuration
are repeated by the driver and come on top; nobody can bound those.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from repro.bisect.ends import CHEAP_TRIES, DEAR_TRIES
from repro.bisect.search import SearchOptions, search
from repro.bisect.split import worst_case, worst_case_levels
from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Outcome, Passed
from repro.domain.stage import Stage
from repro.domain.trial import Answer, Ask, Cost, Fresh, ServerFacts, Trial
from repro.domain.variable import Configuration, Kind, Variable

# One sample above and one below a bracket, looking for bands.
BAND_SAMPLES = 2


@dataclass(frozen=True)
class Plan:
    """Launches and trials of a search.

    `most_launches`, `most_trials`: bounds. `single`: for each variable the launches if it alone were the cause and its
    failure killed the server.
    """

    most_launches: int
    most_trials: int
    single: tuple[tuple[str, int], ...]

    @property
    def typical_launches(self) -> tuple[int, int]:
        """The least and the most launches if one variable alone is the cause."""
        counts = [launches for _, launches in self.single]
        return min(counts), max(counts)


def plan(variables: tuple[Variable, ...], options: SearchOptions = SearchOptions()) -> Plan:
    """The plan of `search(variables, options)`."""
    probes = crashes = 0
    for variable in variables:
        if variable.ordinal:
            more, dead = _threshold(variable, options.precision)
            probes += more + BAND_SAMPLES
            # A request variable launches once to begin and after each crash; a launch variable for every probe.
            launched = more if variable.kind is Kind.LAUNCH else dead + 1
            crashes += launched + BAND_SAMPLES
    count = len(variables)
    launch_count = sum(v.kind is Kind.LAUNCH for v in variables)
    # A ladder step launches for its own launch variable and, after a foreign error, for the baseline again; set-aside
    # variables have a second turn. Taking away launches for each trial, the culprit alone included.
    ladder = 2 * (count + launch_count)
    ends = 2 * DEAR_TRIES
    proof = 2 * count
    return Plan(
        most_launches=ends + ladder + (count + 1) + crashes + proof,
        most_trials=2 * CHEAP_TRIES + 4 * count + (count + 1) + probes + proof,
        single=tuple((v.name, _launches_if(v, variables, options)) for v in variables),
    )


def _threshold(variable: Variable, precision: float) -> tuple[int, int]:
    if not (isinstance(variable.minimal, int) and isinstance(variable.production, int)):
        raise TypeError(f"{variable.name} is not ordinal")
    if variable.levels:
        between = [v for v in variable.levels if variable.minimal < v < variable.production]
        return worst_case_levels(len(between) + 1)
    return worst_case(variable.minimal, variable.production, precision)


def _launches_if(culprit: Variable, variables: tuple[Variable, ...], options: SearchOptions) -> int:
    """Plays the search against a world in which `culprit`, once in the upper half of its range, kills the server."""
    world = _World(culprit, frozenset(v.name for v in variables if v.kind is Kind.LAUNCH))
    running = search(variables, options)
    try:
        ask = next(running)
        while True:
            ask = running.send(world.answer(ask))
    except StopIteration:
        return world.launches


class _World:
    """One server at a time, warm as long as the launch variables stay and nothing killed it."""

    def __init__(self, culprit: Variable, launch_names: Iterable[str]) -> None:
        self.culprit = culprit
        self.launch_names = frozenset(launch_names)
        self.running: tuple[object, ...] | None = None
        self.launches = 0

    def answer(self, ask: Ask) -> tuple[Answer, ...]:
        return tuple(self._one(trial) for trial in ask.trials)

    def _one(self, trial: Trial) -> Answer:
        launch = tuple(value for name, value in trial.configuration.values if name in self.launch_names)
        new = trial.fresh is Fresh.REQUIRED or self.running != launch
        self.launches += new
        outcome = self._outcome(trial.configuration)
        self.running = launch if isinstance(outcome, Passed) else None
        facts = ServerFacts("planned", str(launch), 0 if new else 1, self.running is not None)
        # A launch is taken to cost a hundred requests.
        return Answer(trial.id, outcome, cost=Cost(int(new), 100.0 if new else 1.0), server=facts)

    def _outcome(self, configuration: Configuration) -> Outcome:
        value, low, high = configuration[self.culprit.name], self.culprit.minimal, self.culprit.production
        if self.culprit.ordinal and isinstance(low, int) and isinstance(high, int) and isinstance(value, int):
            fails = value >= max(low + 1, round((max(low, 1) * high) ** 0.5))
        else:
            fails = value == high
        return Failed(Failure(Stage.SERVING, Family.ENGINE_DEAD)) if fails else Passed()
