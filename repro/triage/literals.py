"""Finds the few lines of a block that may matter, in one pass over its bytes, whatever the number of rows.

Every row of the tables fits only where one of its literal texts stands, and so does every other thing the collector
acts upon (a level, a traceback, a refused request): a line without any of them changes nothing. The search itself is
done by the Aho-Corasick automaton that ripgrep uses too; where its package is missing, every line is read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import accumulate
from typing import Any, Protocol

from repro.triage.tables import PatternTable, Row

_LEVELS = ("ERROR", "CRITICAL", "FATAL", "NCCL WARN")
_GLOG = tuple(f"{opening}{letter}{digit}" for opening in ("[", "\n") for letter in "EF" for digit in range(10))
_TRACEBACKS = (
    "Traceback (most recent call last)",
    'File "',
    "File \u201c",
    "Exception ignored in",
    "Exception in thread",
)
_EXCEPTION_ENDS = (
    "Error", "Exception", "Interrupt", "SystemExit", "Timeout", "Empty", "Full", "Again", "Abort", "Failure", "Failed",
    "Refused", "Dead", "Died", ".error", "NotFound", "ExceptionGroup", "Unavailable", "Unsupported",
)  # fmt: skip
_MAX_NARROWED = 2000
_JSON_LINE = "\n{"
_REFUSALS = tuple(f'HTTP/{version}" {digit}' for version in ("1.0", "1.1", "2") for digit in "45")


class _Automaton(Protocol):
    def find_matches_as_indexes(self, haystack: bytes, overlapping: bool = ...) -> list[tuple[int, int, int]]: ...


# A line of a block that may matter: its index, its texts, where the first of them ends, and whether it is plain: all
# its texts decide by themselves, with no regex beside them.
Hit = tuple[int, tuple[int, ...], int, bool]


class Literals:
    """The texts of one table. `find` answers with the lines that hold any, in order."""

    def __init__(self, table: PatternTable) -> None:
        by_regex: dict[str, bool] = {}
        rows: Iterable[Row] = (*table.markers, *table.patterns, *table.consequences, *table.harmless)
        for row in rows:
            for text in row.any:
                by_regex[text] = by_regex.get(text, False) or row.regex is not None or _looks_further(row)
        others = (*_LEVELS, *_GLOG, *_TRACEBACKS, *(f"{end}{mark}" for end in _EXCEPTION_ENDS for mark in ":("))
        for text in (*others, *_REFUSALS, _JSON_LINE):
            by_regex[text] = True
        texts = [text for text in by_regex if text]
        self._plain = [not by_regex[text] for text in texts]
        self._alone = [(which,) for which in range(len(texts))]
        self._texts, self._table = texts, table
        self._narrowed: dict[tuple[int, ...], PatternTable] = {}
        self._automaton = _automaton([text.encode("utf-8") for text in texts])

    @property
    def usable(self) -> bool:
        return self._automaton is not None

    def narrow(self, texts: tuple[int, ...]) -> PatternTable:
        """The rows that a line holding just these texts can fit."""
        table = self._narrowed.get(texts)
        if table is None:
            if len(self._narrowed) >= _MAX_NARROWED:
                self._narrowed.clear()
            table = self._narrowed[texts] = self._table.having({self._texts[text] for text in texts})
        return table

    def find(self, lines: Sequence[bytes]) -> list[Hit]:
        """The lines of a block that hold a text; needs `usable`."""
        if self._automaton is None or not lines:
            return []
        text = b"\n" + b"\n".join(lines)
        found = self._automaton.find_matches_as_indexes(text, overlapping=True)
        if not found:
            return []
        starts = list(accumulate(map((1).__add__, map(len, lines)), initial=0))
        return self._by_line(found, starts)

    def _by_line(self, found: list[tuple[int, int, int]], starts: list[int]) -> list[Hit]:
        """`starts[i]` is the place of the line feed before line i; a match belongs to the line of its last byte."""
        hits: list[Hit] = []
        plain, alone = self._plain, self._alone
        texts: list[int] = []
        line, border, first_end = 0, -1, 0
        for which, _, end in found:
            if end <= border:
                texts.append(which)
                continue
            if len(texts) == 1:
                hits.append((line, alone[texts[0]], first_end, plain[texts[0]]))
            elif texts:
                hits.append((line, tuple(texts), first_end, all(map(plain.__getitem__, texts))))
            line = bisect_right(starts, end - 2, line) - 1
            border, first_end, texts = starts[line + 1], end - starts[line] - 1, [which]
        hits.append((line, tuple(texts), first_end, all(map(plain.__getitem__, texts))))
        return hits


def _looks_further(row: Row) -> bool:
    """A pattern may also look at the traceback or the logging place, a harmless row at the moment."""
    return any(getattr(row, name, None) for name in ("frames", "source", "when_serving"))


def _automaton(texts: list[bytes]) -> _Automaton | None:
    try:
        automata: Any = import_module("ahocorasick_rs")
    except ImportError:  # the same answers, in more time
        return None
    made: _Automaton = automata.BytesAhoCorasick(texts, implementation=automata.Implementation.DFA)
    return made
