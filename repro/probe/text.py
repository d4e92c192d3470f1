"""Seeded text without repeats: no word occurs twice, so no run of tokens does and no prefix cache can find one.

Words are six letters (three syllables); word number i is a permutation of i, keyed by the seed: unlike a random draw it
cannot repeat, and unlike a counter its neighbours look unrelated.
"""

from __future__ import annotations

import hashlib
from functools import cache

_SYLLABLES = tuple(c + v for c in "bdfghjklmnprstvwyzcx" for v in "aeiou")
_SIDE = 1000
_WORDS = _SIDE * _SIDE


def words(seed: int, count: int, first: int = 0) -> str:
    """`count` different words from number `first` on, parted by blanks."""
    return " ".join(_word(seed, number) for number in range(first, first + count))


def _word(seed: int, number: int) -> str:
    cycle, place = divmod(number, _WORDS)
    left, right = divmod(place, _SIDE)
    for step in range(3):  # a small Feistel network: any round function makes it a permutation of 0.._WORDS-1
        left, right = right, (left + _rounds(seed, step)[right]) % _SIDE
    spelled = _spell(left * _SIDE + right, 3)
    return spelled if cycle == 0 else spelled + _spell(cycle, 1 + cycle // len(_SYLLABLES))


def _spell(value: int, syllables: int) -> str:
    out = []
    for _ in range(syllables):
        value, digit = divmod(value, len(_SYLLABLES))
        out.append(_SYLLABLES[digit])
    return "".join(out)


@cache
def _rounds(seed: int, step: int) -> tuple[int, ...]:
    """A table of 1,000 numbers below 1,000 for one round."""
    table = []
    for value in range(_SIDE):
        digest = hashlib.sha256(f"{seed}:{step}:{value}".encode()).digest()
        table.append(int.from_bytes(digest[:4], "big") % _SIDE)
    return tuple(table)
