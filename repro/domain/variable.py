"""Variables: the differences between the minimal and the production configuration, and a choice of values for them.

A configuration knows nothing but names and values; what they mean for a command line or a request is the scene's part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

Value: TypeAlias = str | int | bool | tuple[str, ...] | None
"""None is "absent". A flag without an argument is True (`--x`) or False (`--no-x`). Ordinal values are integers."""


def shown(value: Value | list[str]) -> str:
    """A value for people: thousands grouped, absent and on/off in words."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    return " ".join(value) if isinstance(value, (list, tuple)) else value


class Kind(str, Enum):
    """A launch variable needs a new server, a request variable does not."""

    LAUNCH = "launch"
    REQUEST = "request"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Variable:
    """One difference between minimal and production.

    `parts` are the flags and `env:NAME`s that move together (a parser with its auto-choice flag); a variable of one
    part is named after it. `ordinal` variables hold integers with minimal < production and have a threshold; `levels`,
    if given, are the only values that may be tried between the two.
    """

    name: str
    kind: Kind
    minimal: Value
    production: Value
    ordinal: bool = False
    parts: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.minimal == self.production:
            raise ValueError(f"{self.name}: minimal and production are equal, so it is no variable")
        if self.ordinal and not (
            isinstance(self.minimal, int) and isinstance(self.production, int) and self.minimal < self.production
        ):
            raise ValueError(f"{self.name}: an ordinal variable needs integers with minimal < production")


@dataclass(frozen=True)
class Configuration:
    """A value for every variable, sorted by name; equal configurations are equal values with equal digests."""

    values: tuple[tuple[str, Value], ...]

    @staticmethod
    def of(values: Mapping[str, Value] | Iterable[tuple[str, Value]]) -> Configuration:
        return Configuration(tuple(sorted(dict(values).items())))

    def __getitem__(self, name: str) -> Value:
        for key, value in self.values:
            if key == name:
                return value
        raise KeyError(name)

    def with_value(self, name: str, value: Value) -> Configuration:
        self[name]
        return Configuration(tuple((k, value if k == name else v) for k, v in self.values))

    def changed_from(self, other: Configuration) -> tuple[str, ...]:
        """Names whose values differ between the two, in name order."""
        return tuple(k for k, v in self.values if other[k] != v)

    @property
    def digest(self) -> str:
        """Twelve hex digits over the canonical form."""
        text = json.dumps(self.values, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def minimal_configuration(variables: Iterable[Variable]) -> Configuration:
    """Every variable at its minimal value."""
    return Configuration.of((v.name, v.minimal) for v in variables)


def production_configuration(variables: Iterable[Variable]) -> Configuration:
    """Every variable at its production value."""
    return Configuration.of((v.name, v.production) for v in variables)
