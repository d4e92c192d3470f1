"""What a running search knows: the two ends, the target, the last stable baseline and what was set aside."""

from __future__ import annotations

from dataclasses import dataclass, field

from repro.bisect.ledger import Ledger
from repro.domain.failure import Signature
from repro.domain.finding import Finding, SetAside
from repro.domain.variable import Configuration, Variable, minimal_configuration, production_configuration


@dataclass
class State:
    """`baseline` is S of the rule: the last stable configuration, from which every next trial is derived.

    `tried` are the variables that have had their turn, whatever came of it; `untested` those whose turn told nothing,
    and why. `failing` is the smallest configuration
    known to show the target once the ladder is over.
    """

    variables: tuple[Variable, ...]
    precision: float
    ledger: Ledger = field(default_factory=Ledger)
    target: frozenset[Signature] = frozenset()
    stable: list[Configuration] = field(default_factory=list)
    set_aside: dict[str, SetAside] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    untested: dict[str, str] = field(default_factory=dict)
    failing: Configuration | None = None
    finding: Finding | None = None

    @property
    def minimal(self) -> Configuration:
        return minimal_configuration(self.variables)

    @property
    def production(self) -> Configuration:
        return production_configuration(self.variables)

    @property
    def baseline(self) -> Configuration:
        return self.stable[-1]

    def named(self, name: str) -> Variable:
        return next(v for v in self.variables if v.name == name)

    def raised(self, configuration: Configuration) -> tuple[Variable, ...]:
        """Variables that are not at their minimal value there, in trial order."""
        return tuple(v for v in self.variables if configuration[v.name] != v.minimal)

    def still_possible(self) -> tuple[str, ...]:
        """Variables that may still belong to the cause; while the ladder stands, at least one of them does."""
        if self.failing is not None:
            return tuple(v.name for v in self.raised(self.failing))
        untried = (v.name for v in self.variables if v.name not in self.tried)
        return tuple(dict.fromkeys((*untried, *self.set_aside)))

    def tags(self) -> tuple[tuple[str, str], ...]:
        """(`stable/N`, id of the first trial of that configuration)."""
        return tuple((f"stable/{i}", self.ledger.first_id[c]) for i, c in enumerate(self.stable))
