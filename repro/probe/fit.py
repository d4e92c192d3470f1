"""Cuts a text so that the server counts exactly n tokens, asking nothing but the server's own count.

The count grows with the text, nearly always by one at a time; so the longest beginning that counts n is found by
interpolation and bisection over characters, and its last token is whole, as in the uncut text:

    characters  0 ......... lo | hi ......... len        count(lo) <= n < count(hi)

Where one character is worth several tokens and n falls between, the rest is filled with small characters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# A million tokens take about 15 counts; the rest is reserve for counts that do not grow evenly.
TRIES = 64
_NEIGHBOURS = (0, 1, -1, 2, -2, 3, -3)
_FILLERS = (" a", ".", "a", " ", "1")


@dataclass(frozen=True)
class Unfit:
    """No beginning of the text counts exactly n; `nearest` is the closest count seen, `whole` that of the full text."""

    nearest: int
    whole: int


def fit(text: str, n: int, count: Callable[[str], int], near: int | None = None) -> str | Unfit:
    """The longest beginning of `text` that counts `n` tokens, its frame included, after at most TRIES counts.

    `near` is a cut of a like text that counted n: it and its neighbours are tried first, and taken if they fit, which
    makes a row of alike prompts cheap; such a beginning need not be the longest.
    """
    search = _Search(text, n, count)
    if near is not None:
        for cut in (near + step for step in _NEIGHBOURS if 0 <= near + step <= len(text)):
            if search.at(cut) == n:
                return text[:cut]
    whole = search.at(len(text))
    if whole < n:
        return Unfit(whole, whole)
    if whole == n:
        return text
    if search.at(0) > n:
        return Unfit(search.nearest(), whole)
    cut = search.longest()
    if search.at(cut) == n:
        return text[:cut]
    return search.filled(cut) or search.any_exact() or Unfit(search.nearest(), whole)


class _Search:
    def __init__(self, text: str, n: int, count: Callable[[str], int]) -> None:
        self.text = text
        self.n = n
        self.tries = TRIES
        self._count = count
        self._seen: dict[int, int] = {}

    def at(self, cut: int) -> int:
        """The count of the first `cut` characters, each asked for once."""
        if cut not in self._seen:
            self.tries -= 1
            self._seen[cut] = self._count(self.text[:cut])
        return self._seen[cut]

    def nearest(self) -> int:
        return min(self._seen.values(), key=lambda count: abs(count - self.n))

    def any_exact(self) -> str | None:
        return next((self.text[:cut] for cut, count in self._seen.items() if count == self.n), None)

    def longest(self) -> int:
        """The cut `lo` with count(lo) <= n < count(lo + 1), or the best lower end when the tries run out."""
        lo, hi = 0, len(self.text)
        # Aim a little beside the goal on either side, so that both ends close in, then halve what is left.
        for margin in (self.n // 50 + 4, -(self.n // 50 + 4), 3, -3):
            lo, hi = self._narrow(lo, hi, self._interpolate(lo, hi, self.n + margin))
        while hi - lo > 1 and self.tries > len(_FILLERS) * 2:
            lo, hi = self._narrow(lo, hi, (lo + hi) // 2)
        return lo

    def _narrow(self, lo: int, hi: int, cut: int) -> tuple[int, int]:
        if not lo < cut < hi:
            return lo, hi
        return (cut, hi) if self.at(cut) <= self.n else (lo, cut)

    def _interpolate(self, lo: int, hi: int, goal: int) -> int:
        rise = self.at(hi) - self.at(lo)
        return lo + (goal - self.at(lo)) * (hi - lo) // rise if rise > 0 else (lo + hi) // 2

    def filled(self, cut: int) -> str | None:
        """The first `cut` characters with as many small ones behind as tokens are missing, if any of them count so."""
        missing = self.n - self.at(cut)
        for filler in _FILLERS:
            for times in (missing, missing + 1):
                candidate = self.text[:cut] + filler * times
                if self.tries > 0:
                    self.tries -= 1
                    if self._count(candidate) == self.n:
                        return candidate
        return None
