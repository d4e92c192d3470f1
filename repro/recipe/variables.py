"""Two ends in, variables out: what differs, which parts move together, and what is a number with a threshold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

from repro.domain.command import Command, as_int, canonical, difference, is_ordinal
from repro.domain.scene import (
    ENVIRONMENT,
    NODES,
    PREFIX_CACHING,
    PREFIX_CACHING_FLAG,
    REQUEST_DEFAULTS,
    part_value,
)
from repro.domain.variable import Kind, Value, Variable
from repro.recipe.couplings import NODE_FLAGS, together_with


def differing_parts(minimal: Command, production: Command) -> tuple[str, ...]:
    """Flags and `env:NAME`s that the two commands do not have in common, in production's order."""
    return tuple(change.name for change in difference(production, minimal))


def grouped(parts: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
    """(name, parts) of each variable that these parts make, in the order of their first part."""
    left = list(parts)
    groups: list[tuple[str, tuple[str, ...]]] = []
    while left:
        name, together = _group_of(left[0], left)
        groups.append((name, together))
        left = [part for part in left if part not in together]
    return groups


def _group_of(part: str, among: list[str]) -> tuple[str, tuple[str, ...]]:
    if part == PREFIX_CACHING_FLAG:
        return PREFIX_CACHING, (part,)
    if part in NODE_FLAGS:
        return NODES, tuple(flag for flag in NODE_FLAGS if flag in among)
    together = together_with(part, among)
    return together[0], together


def launch_variable(
    name: str, parts: tuple[str, ...], minimal: Command, production: Command, levels: tuple[int, ...] = ()
) -> Variable:
    """One launch variable; ValueError where its parts are equal on both ends or levels are given for no number."""
    if len(parts) > 1:
        return Variable(name, Kind.LAUNCH, rendered(minimal, parts), rendered(production, parts), parts=parts)
    low, high = part_value(minimal, parts[0]), part_value(production, parts[0])
    least, most = _number(low), _number(high)
    if least is not None and most is not None and least < most and (levels or is_ordinal(parts[0])):
        between = _between(levels, least, most)
        return Variable(name, Kind.LAUNCH, least, most, ordinal=True, parts=parts, levels=between)
    if levels:
        raise ValueError("levels need a whole number on both ends, the smaller one on the minimal end")
    return Variable(name, Kind.LAUNCH, low, high, parts=parts)


def request_variable(name: str, minimal: Value, production: Value, levels: tuple[int, ...] = ()) -> Variable:
    """One request variable; ordinal where both ends are numbers that grow."""
    if _is_number(minimal) and _is_number(production) and minimal < production:
        between = _between(levels, minimal, production)
        return Variable(name, Kind.REQUEST, minimal, production, ordinal=True, levels=between)
    if levels:
        raise ValueError("levels need a smaller number on the minimal end than on the production end")
    return Variable(name, Kind.REQUEST, minimal, production)


def differing_values(minimal: Mapping[str, Value], production: Mapping[str, Value]) -> tuple[str, ...]:
    """Names of request values that differ, in the order of trial."""
    return tuple(name for name in REQUEST_DEFAULTS if minimal[name] != production[name])


def fixed_values(minimal: Mapping[str, Value], production: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    """Request values that are equal on both ends and not the default, in REQUEST_DEFAULTS' order."""
    return tuple(
        (name, production[name])
        for name, default in REQUEST_DEFAULTS.items()
        if minimal[name] == production[name] != default
    )


def rendered(command: Command, parts: Iterable[str]) -> tuple[str, ...] | None:
    """The arguments that the parts stand for, None where the command has none of them."""
    words: list[str] = []
    for part in parts:
        value = part_value(command, part)
        match value:
            case None:
                continue
            case True:
                words.append(part)
            case False:
                words.append(f"--no-{part.removeprefix('--')}")
            case tuple():
                words += [part, *value]
            case _:
                words += [f"{part.removeprefix(ENVIRONMENT)}={value}"] if _is_env(part) else [part, str(value)]
    return tuple(words) or None


def canonical_part(name: str) -> str:
    """A flag by its canonical name, `env:NAME` as it is."""
    return name if _is_env(name) else canonical(name)


def _is_env(part: str) -> bool:
    return part.startswith(ENVIRONMENT)


def _between(levels: tuple[int, ...], low: int, high: int) -> tuple[int, ...]:
    if outside := [level for level in levels if not low < level < high]:
        raise ValueError(f"{outside[0]} does not lie between the ends, {low} and {high}")
    return tuple(sorted(set(levels)))


def _is_number(value: Value) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Value) -> int | None:
    # "auto" is a choice and no amount, although vLLM keeps it as -1.
    number = as_int(value) if isinstance(value, str) else None
    return number if number is not None and number >= 0 else None
