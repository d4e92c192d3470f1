"""Has a server stopped doing anything? Neither a line in its log nor CPU time worth the name for a whole deadline.

Silence alone says little: imports take 10 s and a cold compile 24 s without a line. So CPU time is measured over the
second half of the silence, and any real work begins the wait anew.
"""

from __future__ import annotations

from collections.abc import Callable

# Share of one core that idle threads and heartbeats stay below and any real work exceeds.
_IDLE_SHARE = 0.01


class Stillness:
    """Told of each sign of life by `alive`; `stalled` says whether `stall_s` seconds went by without any."""

    def __init__(self, stall_s: float, cpu_seconds: Callable[[], float], now: float) -> None:
        self._stall_s = stall_s
        self._cpu_seconds = cpu_seconds
        self._since = now
        self._sample: tuple[float, float] | None = None

    def alive(self, now: float) -> None:
        self._since = now
        self._sample = None

    def stalled(self, now: float) -> bool:
        silent = now - self._since
        if self._sample is None:
            if silent >= self._stall_s / 2:
                self._sample = (now, self._cpu_seconds())
            return False
        if silent < self._stall_s:
            return False
        taken_at, before = self._sample
        spent = self._cpu_seconds()
        if spent - before < _IDLE_SHARE * (now - taken_at):
            return True
        self._since, self._sample = taken_at, None
        return False
