"""How often out of how many, and what that leaves possible."""

from __future__ import annotations

import math

# Two-sided 95 %: the interval every report prints.
Z95 = 1.959963984540054


def interval(count: int, of: int) -> tuple[float, float]:
    """Wilson's 95 % interval for `count` of `of`, both ends in 0..1; (0, 1) when nothing was tried.

    Wilson, E. B. (1927), "Probable inference, the law of succession, and statistical inference".
    """
    if of == 0:
        return (0.0, 1.0)
    share, z2 = count / of, Z95 * Z95
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = Z95 * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    low = 0.0 if count == 0 else max(0.0, middle - half)
    high = 1.0 if count == of else min(1.0, middle + half)
    return (low, high)


def rate_left_possible(passes: int, confidence: float = 0.95) -> float:
    """The largest failure rate that `passes` passes in a row leave possible at this confidence; 1 for no passes.

    A fault at rate p stays unseen in n tries with probability (1 - p)^n; solved for p.
    """
    return 1.0 if passes == 0 else 1 - (1 - confidence) ** (1 / passes)


def tries_for_rate(rate: float, confidence: float = 0.95) -> int:
    """How many passes it takes before a fault at this rate is excluded: n >= ln(1 - confidence) / ln(1 - rate)."""
    if not 0 < rate < 1:
        raise ValueError(f"a rate lies strictly between 0 and 1, not at {rate}")
    return math.ceil(math.log(1 - confidence) / math.log(1 - rate))
