"""The data tables of triage: what is progress, what is a cause, what only echoes one, what is harmless.

A row names literal `any` texts of which one must stand in the line (cheap, and what a prefilter is built from), and
may add a `regex`. The first row that fits wins, so specific rows stand before general ones. Users extend the tables
with files of their own, whose rows go before the shipped ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from typing import TypeVar

from repro.domain.failure import Family
from repro.domain.stage import Stage

PROGRESS = "progress"  # stage of a row whose wording names no area: the work in progress decides (RULES S1)
AREA = "area"  # stage of a row that is decided by the part of vLLM that raised, then by the work in progress
KINDS = ("cause", "weak", "hint")
_LONGEST_READ = 4000  # characters a regex may look at: some take the square of it


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
