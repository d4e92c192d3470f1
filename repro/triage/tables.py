"""The data tables of triage: what is progress, what is a cause, what only echoes one, what is harmless.

A row names literal `any` texts of which one must stand in the line (cheap, and what a prefilter is built from), and
may add a `regex`. The first row that fits wins, so specific rows stand before general ones. Users extend the tables
with files of their own, whose rows go before the shipped ones.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.errors import InvalidFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROGRESS = "progress"  # stage of a row whose wording names no area: the work in progress decides (RULES S1)
AREA = "area"  # stage of a row that is decided by the part of vLLM that raised, then by the work in progress
KINDS = ("cause", "weak", "hint")
_LONGEST_READ = 4000  # characters a regex may look at: some take the square of it
SHIPPED = ("markers", "patterns", "consequences", "harmless", "areas")


@dataclass(frozen=True)
class Row:
    """What all tables share. `since`, `until`: first and last vLLM version it was seen in; `more`: further examples."""

    id: str
    any: tuple[str, ...]
    example: str
    why: str
    regex: re.Pattern[str] | None = None
    since: str = ""
    until: str = ""
    more: tuple[str, ...] = ()

    def fits(self, text: str) -> bool:
        for needle in self.any:
            if needle in text:
                return self.regex is None or self.regex.search(text, 0, _LONGEST_READ) is not None
        return False


@dataclass(frozen=True)
class Marker(Row):
    """A line of progress: the stages it proves done, the one whose work begins, and an event triage acts upon."""

    proves: tuple[Stage, ...] = ()
    begins: Stage | None = None
    event: str = ""
    generic: bool = False


@dataclass(frozen=True)
class Pattern(Row):
    """A line or exception that states a fault.

    `kind`: a *cause*; a *weak* one (a process that went away, a broken connection) that yields to any cause; a *hint*,
    an early quiet trace that becomes the root line only where the root has one of the families in `hints`.
    `quiet` rows also count on INFO, WARNING and DEBUG lines. `fixed` keeps the stage even after ready. `outside` rows
    are words of Docker or a shell and need no vLLM line around them. `final` ones end the process by themselves.
    `frames` must match the traceback.
    """

    stage: str = PROGRESS
    family: Family = Family.OTHER
    kind: str = "cause"
    hints: tuple[Family, ...] = ()
    frames: re.Pattern[str] | None = None
    source: re.Pattern[str] | None = None
    example_frame: str = ""
    example_source: str = ""
    quiet: bool = False
    fixed: bool = False
    outside: bool = False
    final: bool = False


@dataclass(frozen=True)
class Consequence(Row):
    """A line that only follows from a cause. `proves_serving` ones are printed only by an engine that was serving,
    `of_request` ones by a single request; a `mild` one does not prove that the start or the server is over.
    """

    proves_serving: bool = False
    of_request: bool = False
    mild: bool = False


@dataclass(frozen=True)
class Harmless(Row):
    """A line that reads like a fault and is none; `sign` where only vLLM prints it, `when_serving` where only then."""

    sign: bool = False
    when_serving: bool = False


@dataclass(frozen=True)
class Area(Row):
    """Which part of the house a traceback came from (matched on frames), for faults that no pattern knows."""

    stage: str = PROGRESS
    family: Family = Family.OTHER
    exceptions: tuple[str, ...] = ()


AnyRow = TypeVar("AnyRow", bound=Row)


def first(rows: Iterable[AnyRow], text: str) -> AnyRow | None:
    """The first row that fits `text`."""
    return next((row for row in rows if row.fits(text)), None)


@dataclass(frozen=True)
class PatternTable:
    """All tables together, immutable."""

    markers: tuple[Marker, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    harmless: tuple[Harmless, ...] = ()
    areas: tuple[Area, ...] = ()
    causes: tuple[Pattern, ...] = field(init=False, default=())
    plain: tuple[Pattern, ...] = field(init=False, default=())
    quiet: tuple[Pattern, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        hints = tuple(row for row in self.patterns if row.kind == "hint")
        causes = tuple(row for row in self.patterns if row.kind != "hint")
        object.__setattr__(self, "causes", causes)
        object.__setattr__(self, "plain", hints + causes)
        object.__setattr__(self, "quiet", tuple(row for row in hints + causes if row.quiet))

    def with_files(self, paths: Sequence[Path]) -> PatternTable:
        """A new table with the rows of the user's files before these; raises InvalidFile naming file and row."""
        table = self
        for path in paths:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidFile(f"{path}: cannot be read: {error}", "Give a readable TOML file in UTF-8.") from error
            table = parse_table(text, str(path)).before(table)
        return table

    def having(self, texts: Set[str]) -> PatternTable:
        """Only the rows that one of `texts` can make fit; the areas, which look at tracebacks, stay."""

        def kept(rows: tuple[AnyRow, ...]) -> tuple[AnyRow, ...]:
            return tuple(row for row in rows if not texts.isdisjoint(row.any))

        return PatternTable(
            kept(self.markers), kept(self.patterns), kept(self.consequences), kept(self.harmless), self.areas
        )

    def before(self, other: PatternTable) -> PatternTable:
        return PatternTable(
            self.markers + other.markers,
            self.patterns + other.patterns,
            self.consequences + other.consequences,
            self.harmless + other.harmless,
            self.areas + other.areas,
        )


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
        raise InvalidFile(f"{name}: unknown tables {sorted(unknown)}", f"Use {', '.join(makers)}.")
    made: dict[str, list[Any]] = {kind: [] for kind in makers}
    for kind, make in makers.items():
        for index, row in enumerate(data.get(kind, []), 1):
            try:
                made[kind].append(make(row))
            except (KeyError, TypeError, ValueError, re.error) as error:
                label = row.get("id", f"number {index}") if isinstance(row, dict) else f"number {index}"
                raise InvalidFile(
                    f"{name}: {kind} {label}: {error!r}", "Compare the row with the shipped ones."
                ) from error
    return PatternTable(
        tuple(made["marker"]),
        tuple(made["pattern"]),
        tuple(made["consequence"]),
        tuple(made["harmless"]),
        tuple(made["area"]),
    )


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
