"""Markdown from untrusted text: log lines and values must not become headings, links or new table columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from repro.handoff.log_excerpt import plain

# An underscore inside a word is harmless, and most names here have one.
_SPECIAL = re.compile(r"([\\`*\[\]<>|]|^#|(?<!\w)_|_(?!\w))")


def escaped(text: str) -> str:
    """Text that is shown as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(text).split()))


def code(text: str) -> str:
    """An inline code span around text that may hold backticks; on one line."""
    shown = " ".join(plain(text).split())
    ticks = "`" * (1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    space = " " if shown.startswith("`") or shown.endswith("`") or not shown else ""
    return f"{ticks}{space}{shown}{space}{ticks}"


def cell(text: str) -> str:
    """An inline code span that may stand in a table, where a bar ends the column even inside code."""
    return code(text).replace("|", "\\|")


def block(text: str, language: str = "text") -> str:
    """A fenced block whose fence is longer than any inside."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already; empty without rows."""
    rows = [tuple(row) for row in rows]
    if not rows:
        return ""
    return str(tabulate(rows, headers=list(headers), tablefmt="github", disable_numparse=True))


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)
