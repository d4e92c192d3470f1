"""The `[[variable]]` list of a scenario held against what really differs: each difference once, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from repro.domain.scene import NODES, PREFIX_CACHING, REQUEST_DEFAULTS
from repro.domain.variable import Variable
from repro.errors import InvalidFile
from repro.recipe.ends import Ends, parts_named
from repro.recipe.scenario import VariablePart
from repro.recipe.source import Keys, Source
from repro.recipe.variables import canonical_part, grouped, launch_variable, request_variable


def listed_variables(listed: Sequence[VariablePart], source: Source, ends: Ends) -> tuple[Variable, ...]:
    """The variables in the file's order; InvalidFile where the list and the ends do not agree."""
    differing = ends.differing
    if not differing:
        what = "both ends are equal, so there is nothing to search"
        raise source.error(("production",), what, "Give production the settings under which it fails.")
    if not listed:
        raise source.error((), "no [[variable]] is listed", f"The ends differ in: {_lines(differing)}.")
    taken: list[str] = []
    variables: list[Variable] = []
    for position, one in enumerate(listed):
        keys: Keys = ("variable", position)
        parts = _parts(one, differing)
        if one.name in REQUEST_DEFAULTS and one.couple:
            raise source.error((*keys, "couple"), "a request value moves alone", "Take the `couple` out.")
        for number, part in enumerate(parts):
            where: Keys = (*keys, "couple" if number and one.couple else "name")
            if part in taken:
                raise source.error(where, f"{part} is listed twice", "Keep one of the two.")
            if part not in differing:
                raise _no_difference(source, where, part, ends)
            taken.append(part)
        variables.append(_variable(source, keys, one, parts, ends))
    if left := [name for name in differing if name not in taken]:
        raise _unlisted(source, left, ends)
    return tuple(variables)


def _parts(one: VariablePart, differing: Sequence[str]) -> tuple[str, ...]:
    couple = tuple(canonical_part(name) for name in one.couple)
    # `nodes` is no flag itself, so that its couple, where written, is all of it.
    return couple if couple and one.name == NODES else (*parts_named(one.name, differing), *couple)


def _variable(source: Source, keys: Keys, one: VariablePart, parts: tuple[str, ...], ends: Ends) -> Variable:
    levels = tuple(one.levels)
    try:
        if one.name in REQUEST_DEFAULTS:
            return request_variable(one.name, ends.low[one.name], ends.high[one.name], levels)
        name = one.name if one.name in (PREFIX_CACHING, NODES) else parts[0]
        return launch_variable(name, parts, ends.minimal, ends.production, levels)
    except ValueError as error:
        raise source.error((*keys, "levels"), str(error), "Change the ends or take the levels out.") from error


def _no_difference(source: Source, keys: Keys, part: str, ends: Ends) -> InvalidFile:
    both = ends.value(part, production=True)
    on_both = "is on neither end" if both is None else f"is {both!r} on both ends"
    near = get_close_matches(part, ends.differing, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    mend = f"{meant}The ends differ in: {', '.join(ends.differing)}."
    return source.error(keys, f"{part!r} {on_both}, so it is no variable", mend)


def _unlisted(source: Source, left: Sequence[str], ends: Ends) -> InvalidFile:
    told = [f"{n} (minimal: {_shown(ends, n, False)}; production: {_shown(ends, n, True)})" for n in left]
    return source.error(
        ("production", "command"),
        f"the ends also differ in what is listed nowhere: {', '.join(told)}",
        f"Add {_lines(left)}; or name it in the `couple` of the variable it belongs to, or in `exclude`.",
    )


def _lines(names: Sequence[str]) -> str:
    """What to write for these differences, flags that belong together already coupled."""
    lines = [f'[[variable]] name = "{name}"' for name in names if name in REQUEST_DEFAULTS]
    for name, parts in grouped(name for name in names if name not in REQUEST_DEFAULTS):
        couple = [f'"{part}"' for part in parts if part != name]
        coupled = f" couple = [{', '.join(couple)}]" if couple and name not in (PREFIX_CACHING, NODES) else ""
        lines.append(f'[[variable]] name = "{name}"{coupled}')
    return "; ".join(lines)


def _shown(ends: Ends, name: str, production: bool) -> str:
    value = ends.value(name, production)
    return "absent" if value is None else repr(value)
