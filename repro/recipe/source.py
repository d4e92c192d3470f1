"""A TOML file that a user wrote: its text, its parsed form, and errors that point at the line to mend.

TOML parsers keep no line numbers, so the line of a key is looked up in the text: headers and `key =` lines are followed
in order and the longest known part of the key's path wins. A key inside an inline table gets the line of its table.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.errors import InvalidFile

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Keys = tuple[str | int, ...]

_NAME = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_HEADER = re.compile(rf"^\s*(\[\[?)\s*({_DOTTED})\s*\]\]?")
_KEY = re.compile(rf"^\s*({_DOTTED})\s*=")
_PLACE = re.compile(r"\s*\((?:at line (\d+), column (\d+)|at end of document)\)$")


@dataclass(frozen=True)
class Source:
    """A file's name as the user knows it, and its text."""

    file: str
    text: str

    @staticmethod
    def read(path: Path) -> Source:
        """Raises InvalidFile when the file is not there, is not readable or is not UTF-8."""
        try:
            return Source(str(path), path.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise InvalidFile(f"{path}: not UTF-8 text (byte {error.start})", "Save the file as UTF-8.") from error
        except OSError as error:
            raise InvalidFile(
                f"{path}: cannot be read ({error.strerror})", "Check the path and that you may read the file."
            ) from error

    @property
    def folder(self) -> Path:
        return Path(self.file).resolve().parent

    def parse(self) -> dict[str, Any]:
        """The document as plain values; InvalidFile with line and column on a syntax error."""
        try:
            return tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidFile(*self._syntax(str(error))) from error

    def _syntax(self, said: str) -> tuple[str, str]:
        place = _PLACE.search(said)
        what = _PLACE.sub("", said)
        if place is None or place[1] is None:
            return (
                f"{self.file}:{len(self.text.splitlines())}: not valid TOML: {what}, at the end of the file",
                "Something opened with a quote or a bracket is not closed.",
            )
        line, column = int(place[1]), int(place[2])
        if "overwrite" in what or "twice" in what:
            return (f"{self.file}:{line}: this key or table is there twice", "Keep one of the two.")
        lines = self.text.splitlines()
        seen = lines[line - 1].strip() if line <= len(lines) else ""
        shape = f"in the line that begins {seen.split('=')[0].strip()!r}" if "=" in seen else "there"
        return (
            f"{self.file}:{line}:{column}: not valid TOML: {what}",
            f"Look {shape}: text needs quotes, lists need [..] and commas, true and false are lower case.",
        )

    def line_of(self, keys: Keys) -> int | None:
        """The line, from 1, of the key with this path (table names, list positions, key), or of its nearest parent."""
        found, depth = None, 0
        for number, path in _assignments(self.text):
            known = _common(path, keys)
            # A longer path than asked for is a child: its table has no header of its own.
            if known > depth and known == min(len(path), len(keys)):
                found, depth = number, known
        return found

    def error(self, keys: Keys, what: str, mend: str) -> InvalidFile:
        """An InvalidFile about one key: `file:line: key: what`."""
        line = self.line_of(keys)
        place = self.file if line is None else f"{self.file}:{line}"
        key = spelled(keys)
        return InvalidFile(f"{place}: {key}: {what}" if key else f"{place}: {what}", mend)


def spelled(keys: Keys) -> str:
    """`variable[2].levels` for ("variable", 1, "levels"): list positions are shown from 1, as people count."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key + 1}]"
        else:
            text += f".{key}" if text else key
    return text


def _common(left: Keys, right: Keys) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def _assignments(text: str) -> list[tuple[int, Keys]]:
    """Every table header and `key =` line with its full path, in order."""
    found: list[tuple[int, Keys]] = []
    table: Keys = ()
    counts: dict[tuple[str, ...], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            names = _split(header[2])
            if header[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
            table = _indexed(names, counts)
            found.append((number, table))
        elif key := _KEY.match(line):
            found.append((number, (*table, *_split(key[1]))))
    return found


def _indexed(names: tuple[str, ...], counts: dict[tuple[str, ...], int]) -> Keys:
    path: list[str | int] = []
    for end, name in enumerate(names, 1):
        path.append(name)
        if names[:end] in counts:
            path.append(counts[names[:end]])
    return tuple(path)


def _split(dotted: str) -> tuple[str, ...]:
    return tuple(name.strip("\"'") for name in re.findall(_NAME, dotted))
