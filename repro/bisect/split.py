"""Where to probe next between a passing and a failing value.

A probe that fails may cost a launch (the server dies), one that passes only its requests. Plain bisection crashes on
every second probe; climbing in small steps crashes once but asks often. The best mix follows from the ratio of the two
costs by dynamic programming over the cells between the values (uniform prior on a logarithmic scale):

    low |--1--|--2--| ... |--k--| ... |--n--| high        a probe after cell k fails if the threshold lies in 1..k

    E(n) = min over k of  1 + (k/n) * (crash + E(k)) + ((n-k)/n) * E(n-k),      E(1) = 0
"""

from __future__ import annotations

import math
from functools import lru_cache

# More cells than this are cut into this many groups: the best fraction hardly changes and the table stays small.
MOST_CELLS = 256
# Cost ratios are rounded to these steps, so that small differences in measured seconds do not change a plan.
RATIOS = (0, 4, 16, 64)
# Down to this width even an exact search splits on a logarithmic scale: thresholds are lengths and counts.
COARSE = 0.05


def rounded_ratio(crash_cost: float, probe_cost: float) -> int:
    """The step of `RATIOS` nearest below crash_cost / probe_cost; 0 when a crash costs nothing extra."""
    ratio = crash_cost / max(probe_cost, 1e-9)
    return max((step for step in RATIOS if step <= ratio), default=0)


def narrow_enough(low: int, high: int, precision: float) -> bool:
    """Whether no value lies between, or the two are within `precision` (a fraction of `low`; 0 asks for neighbours)."""
    return high - low <= 1 or (precision > 0 and high <= max(low, 1) * (1 + precision))


def probe(low: int, high: int, precision: float, ratio: int) -> int | None:
    """The next value to try strictly between `low` (passes) and `high` (fails), or None when narrow enough.

    Wide brackets are split on a logarithmic scale; with precision 0 the last 5 % are split on a linear one.
    """
    if narrow_enough(low, high, precision):
        return None
    coarse = precision if precision > 0 else COARSE
    if narrow_enough(low, high, coarse):
        return low + _linear_step(high - low, ratio)
    floor = max(low, 1)
    n = min(MOST_CELLS, max(2, math.ceil(math.log(high / floor) / math.log1p(coarse) - 1e-9)))
    value: int = round(floor * (high / floor) ** (_best_split(n, ratio) / n))
    return min(max(value, low + 1), high - 1)


def level_probe(count: int, ratio: int) -> int | None:
    """Like `probe` for a list: how many of the `count` steps between a passing and a failing level to go up."""
    return None if count <= 1 else _linear_step(count, ratio)


def worst_case(low: int, high: int, precision: float) -> tuple[int, int]:
    """The most probes and the most failing probes that narrowing (low, high] can take, over all cost ratios."""
    worst = [_worst_between(low, high, precision, ratio) for ratio in RATIOS]
    return max(p for p, _ in worst), max(c for _, c in worst)


def worst_case_levels(count: int) -> tuple[int, int]:
    """The same for a list of `count` steps."""
    worst = [_worst_linear(count, ratio) for ratio in RATIOS]
    return max(p for p, _ in worst), max(c for _, c in worst)


@lru_cache(maxsize=65536)
def _worst_between(low: int, high: int, precision: float, ratio: int) -> tuple[int, int]:
    """Follows the policy itself down every branch; there are about as many brackets as distinguishable thresholds."""
    if precision <= 0 and narrow_enough(low, high, COARSE):
        return _worst_linear(high - low, ratio)
    value = probe(low, high, precision, ratio)
    if value is None:
        return (0, 0)
    return _one_more(_worst_between(low, value, precision, ratio), _worst_between(value, high, precision, ratio))


@lru_cache(maxsize=65536)
def _worst_linear(count: int, ratio: int) -> tuple[int, int]:
    if count <= 1:
        return (0, 0)
    step = _linear_step(count, ratio)
    return _one_more(_worst_linear(step, ratio), _worst_linear(count - step, ratio))


def _one_more(failed: tuple[int, int], passed: tuple[int, int]) -> tuple[int, int]:
    return 1 + max(failed[0], passed[0]), max(1 + failed[1], passed[1])


def _linear_step(count: int, ratio: int) -> int:
    grouped = min(count, MOST_CELLS)
    return max(1, round(count * _best_split(grouped, ratio) / grouped))


def _best_split(n: int, ratio: int) -> int:
    return _table(ratio)[n][1]


@lru_cache(maxsize=len(RATIOS))
def _table(ratio: int) -> list[tuple[float, int]]:
    """(expected cost, best k) for every number of cells up to MOST_CELLS."""
    table: list[tuple[float, int]] = [(0.0, 0), (0.0, 0)]
    for n in range(2, MOST_CELLS + 1):
        best, where = math.inf, 1
        for k in range(1, n):
            cost = 1 + (k / n) * (ratio + table[k][0]) + ((n - k) / n) * table[n - k][0]
            if cost < best - 1e-12:
                best, where = cost, k
        table.append((best, where))
    return table
