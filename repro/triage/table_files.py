"""Reads the tables from TOML: the shipped ones, and a user's own, whose rows go before them.

A wrong file is told with file, row and mend, down to a key that is written wrongly: a row that never fits because of a
typing error is worse than one that is refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.errors import InvalidFile
from repro.triage.tables import AREA, KINDS, PROGRESS, Area, Consequence, Harmless, Marker, Pattern, PatternTable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = ("markers", "patterns", "consequences", "harmless", "areas")
NEEDED = ("id", "any", "example", "why")
_KEYS = {
    "marker": {"proves", "begins", "event", "generic"},
    "pattern": {
        "stage", "family", "kind", "hints", "frames", "source", "example_frame", "example_source", "quiet", "fixed",
        "outside", "final",
    },
    "consequence": {"proves_serving", "of_request", "mild"},
    "harmless": {"sign", "when_serving"},
    "area": {"stage", "family", "exceptions"},
}  # fmt: skip
_COMMON = {*NEEDED, "regex", "since", "until", "more"}


def with_files(table: PatternTable, paths: Sequence[Path]) -> PatternTable:
    """A new table with the rows of the user's files before those of `table`; raises InvalidFile naming file and row."""
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidFile(f"{path}: cannot be read: {error}", "Give a readable TOML file in UTF-8.") from error
        own = parse_table(text, str(path))
        for row in (*own.markers, *own.patterns, *own.consequences, *own.harmless):
            if not row.fits(row.example):
                raise InvalidFile(
                    f"{path}: {row.id}: the row does not fit its own example",
                    "One text of `any` must stand in the example, and `regex` must match it.",
                )
        table = own.before(table)
    return table


@lru_cache(maxsize=1)
def shipped_table() -> PatternTable:
    """The tables that come with repro."""
    table = PatternTable()
    for name in SHIPPED:
        text = resources.files("repro.triage").joinpath(f"{name}.toml").read_text(encoding="utf-8")
        table = table.before(parse_table(text, f"{name}.toml"))
    return table


def parse_table(text: str, name: str) -> PatternTable:
    """Reads one TOML text with `[[marker]]`, `[[pattern]]`, `[[consequence]]`, `[[harmless]]`, `[[area]]` rows."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidFile(f"{name}: not valid TOML: {error}", "Mend the file at the place named.") from error
    makers = {
        "marker": _marker,
        "pattern": _pattern,
        "consequence": _consequence,
        "harmless": _harmless,
        "area": _area,
    }
    if unknown := set(data) - set(makers):
        raise InvalidFile(f"{name}: unknown tables {sorted(unknown)}", f"Use {', '.join(f'[[{k}]]' for k in makers)}.")
    made: dict[str, list[Any]] = {kind: [] for kind in makers}
    for kind, make in makers.items():
        rows = data.get(kind, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InvalidFile(f"{name}: {kind} is no list of rows", f"Begin every row with [[{kind}]].")
        for index, row in enumerate(rows, 1):
            label = f"{name}: {kind} {row.get('id', f'number {index}')}"
            _check_keys(label, kind, row)
            try:
                made[kind].append(make(row))
            except (TypeError, ValueError, re.error) as error:
                raise InvalidFile(f"{label}: {error}", _mend(error)) from error
    return PatternTable(
        tuple(made["marker"]),
        tuple(made["pattern"]),
        tuple(made["consequence"]),
        tuple(made["harmless"]),
        tuple(made["area"]),
    )


def _check_keys(label: str, kind: str, row: dict[str, Any]) -> None:
    needed = (*NEEDED, "stage", "family") if kind in {"pattern", "area"} else NEEDED
    if missing := [key for key in needed if key not in row]:
        raise InvalidFile(f"{label}: {', '.join(missing)} missing", f"A {kind} row needs {', '.join(needed)}.")
    allowed = _COMMON | _KEYS[kind]
    if unknown := sorted(set(row) - allowed):
        raise InvalidFile(f"{label}: unknown key {', '.join(unknown)}", f"A row may have {', '.join(sorted(allowed))}.")


def _mend(error: Exception) -> str:
    """What may stand there instead; the names of an enumeration are listed."""
    words: dict[str, type[Enum]] = {"Stage": Stage, "Family": Family}
    for name, kind in words.items():
        if f"valid {name}" in str(error):
            more = (PROGRESS, AREA) if kind is Stage else ()
            return f"Use one of {', '.join([*(item.value for item in kind), *more])}."
    if isinstance(error, re.error):
        return "Mend the regular expression; a literal text belongs into `any`."
    return "Compare the row with the shipped ones."


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(item, str) and item for item in value):
        raise ValueError("a list of texts is wanted")
    return tuple(value)


def _regex(value: str | None) -> re.Pattern[str] | None:
    return None if value is None else re.compile(value)


def _common(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "any": _texts(row["any"]),
        "example": row["example"],
        "why": row["why"],
        "regex": _regex(row.get("regex")),
        "since": row.get("since", ""),
        "until": row.get("until", ""),
        "more": _texts(row.get("more", ())),
    }


def _marker(row: dict[str, Any]) -> Marker:
    begins = row.get("begins")
    return Marker(
        **_common(row),
        proves=tuple(Stage(name) for name in row.get("proves", ())),
        begins=Stage(begins) if begins else None,
        event=row.get("event", ""),
        generic=bool(row.get("generic", False)),
    )


def _consequence(row: dict[str, Any]) -> Consequence:
    return Consequence(
        **_common(row),
        proves_serving=bool(row.get("proves_serving", False)),
        of_request=bool(row.get("of_request", False)),
        mild=bool(row.get("mild", False)),
    )


def _harmless(row: dict[str, Any]) -> Harmless:
    return Harmless(
        **_common(row), sign=bool(row.get("sign", False)), when_serving=bool(row.get("when_serving", False))
    )


def _stage(name: str) -> str:
    return name if name in {PROGRESS, AREA} else Stage(name).value


def _pattern(row: dict[str, Any]) -> Pattern:
    kind = row.get("kind", "cause")
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is none of {KINDS}")
    return Pattern(
        **_common(row),
        stage=_stage(row["stage"]),
        family=Family(row["family"]),
        kind=kind,
        hints=tuple(Family(name) for name in row.get("hints", ())),
        frames=_regex(row.get("frames")),
        source=_regex(row.get("source")),
        example_frame=row.get("example_frame", ""),
        example_source=row.get("example_source", ""),
        quiet=bool(row.get("quiet", False)),
        fixed=bool(row.get("fixed", False)),
        outside=bool(row.get("outside", False)),
        final=bool(row.get("final", row.get("outside", False))),
    )


def _area(row: dict[str, Any]) -> Area:
    return Area(
        **_common(row),
        stage=_stage(row["stage"]),
        family=Family(row["family"]),
        exceptions=_texts(row.get("exceptions", ())),
    )
