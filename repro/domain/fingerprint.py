"""Facts about a scene, each with its evidence, and whether two scenes are the same.

`pinned` facts must stay equal for trials to be comparable; `observed` ones (memory, load, neighbours) change by
themselves and are only reported. A fact that was known and no longer is counts as a difference: no data is never
proof of sameness. Two unavailable facts are equal whatever their reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Label(str, Enum):
    """How a fact is known."""

    MEASURED = "measured"
    DECLARED = "declared"
    UNAVAILABLE = "unavailable"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Fact:
    """One value (JSON) with its label; `reason` says why it is unavailable, or how it was found."""

    value: Any
    label: Label
    reason: str = ""

    @classmethod
    def measured(cls, value: Any, how: str = "") -> Fact:
        return cls(value, Label.MEASURED, how)

    @classmethod
    def declared(cls, value: Any, by: str = "") -> Fact:
        return cls(value, Label.DECLARED, by)

    @classmethod
    def unavailable(cls, reason: str) -> Fact:
        return cls(None, Label.UNAVAILABLE, reason)

    @property
    def known(self) -> bool:
        return self.label is not Label.UNAVAILABLE

    def same_as(self, other: Fact) -> bool:
        """Equal in what is known; a declared value may equal a measured one."""
        if not self.known or not other.known:
            return self.known == other.known
        return bool(self.value == other.value)

    def as_json(self) -> dict[str, Any]:
        shown = {"value": self.value, "label": self.label.value}
        return {**shown, "reason": self.reason} if self.reason else shown

    @classmethod
    def from_json(cls, shown: Mapping[str, Any]) -> Fact:
        return cls(shown["value"], Label(shown["label"]), shown.get("reason", ""))


@dataclass(frozen=True)
class Fingerprint:
    """The facts of one scene by dotted name, such as `gpu.driver_version`."""

    pinned: Mapping[str, Fact] = field(default_factory=dict)
    observed: Mapping[str, Fact] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """`{pinned: {name: {value, label, reason?}}, observed: {...}}`, names sorted."""
        return {"pinned": _facts_as_json(self.pinned), "observed": _facts_as_json(self.observed)}

    @classmethod
    def from_json(cls, shown: Mapping[str, Any]) -> Fingerprint:
        return cls(
            {name: Fact.from_json(fact) for name, fact in shown["pinned"].items()},
            {name: Fact.from_json(fact) for name, fact in shown["observed"].items()},
        )


_MOST_ENTRIES = 8


@dataclass(frozen=True)
class FactDifference:
    """One fact that differs; None where a side does not have it at all."""

    name: str
    pinned: bool
    before: Fact | None
    now: Fact | None

    def __str__(self) -> str:
        """What a person can act on: of two tables only the entries that differ."""
        before, now = self.before, self.now
        if before and now and isinstance(before.value, Mapping) and isinstance(now.value, Mapping):
            keys = sorted({*before.value, *now.value})
            other = [k for k in keys if before.value.get(k) != now.value.get(k)]
            parts = [f"{k} {before.value.get(k, 'absent')} -> {now.value.get(k, 'absent')}" for k in other]
            return f"{self.name}: {', '.join(parts[:_MOST_ENTRIES])}" + (", …" if len(parts) > _MOST_ENTRIES else "")
        return f"{self.name}: {_shown(before)} -> {_shown(now)}"


def compare(before: Fingerprint, now: Fingerprint) -> tuple[FactDifference, ...]:
    """Every difference, pinned ones first, each part by name."""
    return moved(before, now) + _differences(before.observed, now.observed, pinned=False)


def moved(before: Fingerprint, now: Fingerprint) -> tuple[FactDifference, ...]:
    """The pinned facts that are no longer what they were."""
    return _differences(before.pinned, now.pinned, pinned=True)


def _differences(before: Mapping[str, Fact], now: Mapping[str, Fact], *, pinned: bool) -> tuple[FactDifference, ...]:
    absent = Fact.unavailable("not collected")
    return tuple(
        FactDifference(name, pinned, before.get(name), now.get(name))
        for name in sorted({*before, *now})
        if not before.get(name, absent).same_as(now.get(name, absent))
    )


def _facts_as_json(facts: Mapping[str, Fact]) -> dict[str, Any]:
    return {name: facts[name].as_json() for name in sorted(facts)}


def _shown(fact: Fact | None) -> str:
    if fact is None:
        return "not collected"
    return str(fact.value) if fact.known else f"unavailable ({fact.reason})"
