"""Secrets whose value is known: found wherever they stand, also URL-encoded, JSON-escaped and inside base64.

Base64 moves with the bytes before it, so `user:SECRET` does not contain the base64 of `SECRET`; each of the three
possible alignments is looked for, without the characters at either end that depend on the neighbours.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

from repro.redact.secret_names import is_placeholder

_ANYWHERE_LENGTH = 8  # shorter secrets are masked as a whole word only, or ordinary text would be eaten
_SHORTEST = 4  # a secret of three characters cannot be told from text; naming rules still mask it


class KnownSecrets:
    """Values to find literally; values may be added while working."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}  # spelling -> the secret itself
        self._rules: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, rule: str, value: str) -> None:
        """Remember one secret under a rule; placeholders and very short values are ignored."""
        if value in self._rules or len(value) < _SHORTEST or is_placeholder(value):
            return
        self._rules[value] = rule
        for spelling in _spellings(value):
            self._values.setdefault(spelling, value)
        self._pattern = re.compile("|".join(_literal(s) for s in sorted(self._values, key=len, reverse=True)))

    def are_in(self, text: str) -> bool:
        """Whether any spelling of any of them stands in the text."""
        return self._pattern is not None and self._pattern.search(text) is not None

    def mask(self, text: str, mask: Callable[[str, str], str]) -> str:
        """Replace each spelling with `mask(secret, rule)`."""
        if self._pattern is None:
            return text

        def replace(match: re.Match[str]) -> str:
            secret = self._values[match.group()]
            return mask(secret, self._rules[secret])

        return self._pattern.sub(replace, text)


def _literal(spelling: str) -> str:
    escaped = re.escape(spelling)
    return escaped if len(spelling) >= _ANYWHERE_LENGTH else rf"(?<![A-Za-z0-9_]){escaped}(?![A-Za-z0-9_])"


def _spellings(value: str) -> set[str]:
    found = {value}
    if len(value) < _ANYWHERE_LENGTH:
        return found
    raw = value.encode("utf-8", "surrogateescape")
    found |= {quote(raw, safe=""), quote(raw), quote_plus(raw), json.dumps(value)[1:-1]}
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw).decode("ascii")
        first = (0, 2, 3)[shift]  # characters that also carry bits of what stands before
        uncertain = {0: 0, 1: 3, 2: 2}[(shift + len(raw)) % 3]  # padding, and the one character that shares its bits
        spelling = encoded[first : len(encoded) - uncertain]
        found |= {spelling, spelling.replace("+", "-").replace("/", "_")}
    return {s for s in found if len(s) >= _ANYWHERE_LENGTH}
