"""Two ends in, variables out: what differs, which parts move together, and what is a number with a threshold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
from repro.recipe.couplings import COUPLINGS, NODE_FLAGS


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
    for coupling in COUPLINGS:
        if part in coupling.flags:
            together = tuple(flag for flag in coupling.flags if flag in among)
            return together[0], together
    return part, (part,)


def launch_variable(
    name: str, parts: tuple[str, ...], minimal: Command, production: Command, levels: tuple[int, ...] = ()
) -> Variable:
    """One launch variable; ValueError where its parts are equal on both ends or levels are given for no number."""
    if len(parts) > 1:
        return Variable(name, Kind.LAUNCH, rendered(minimal, parts), rendered(production, parts), parts=parts)
    low, high = part_value(minimal, parts[0]), part_value(production, parts[0])
    numbers = (_number(low), _number(high))
    if numbers[0] is not None and numbers[1] is not None and (levels or is_ordinal(parts[0])):
        if numbers[0] < numbers[1]:
            return Variable(name, Kind.LAUNCH, *numbers, ordinal=True, parts=parts, levels=levels)
        if levels:
            raise ValueError("levels need a smaller number on the minimal end than on the production end")
    if levels:
        raise ValueError("levels need a whole number on both ends")
    return Variable(name, Kind.LAUNCH, low, high, parts=parts)


def request_variable(name: str, minimal: Value, production: Value, levels: tuple[int, ...] = ()) -> Variable:
    """One request variable; ordinal where both ends are numbers that grow."""
    numbers = _is_number(minimal) and _is_number(production)
    ordinal = numbers and minimal < production  # type: ignore[operator]
    if levels and not ordinal:
        raise ValueError("levels need a smaller number on the minimal end than on the production end")
    return Variable(name, Kind.REQUEST, minimal, production, ordinal=ordinal, levels=levels)


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


def _is_number(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Value) -> int | None:
    # "auto" is a choice and no amount, although vLLM keeps it as -1.
    number = as_int(value) if isinstance(value, str) else None
    return number if number is not None and number >= 0 else None
