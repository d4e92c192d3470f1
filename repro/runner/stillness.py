"""Has a server stopped doing anything? No line in its log, and no CPU time, disk or network traffic worth the name.

Silence alone says little: imports take 10 s and a cold compile 24 s without a line. So the rest is measured over the
second half of the silence, and any real work begins the wait anew.
"""

from __future__ import annotations

from collections.abc import Callable

from repro.machine.family import Activity

# Share of one core that idle threads and heartbeats stay below and any real work exceeds.
_IDLE_SHARE = 0.01
# Bytes a second: the heartbeats of stores and sockets stay far below it, the slowest disk or network far above.
_IDLE_BYTES = 16 * 1024


class Stillness:
    """Told of each sign of life by `alive`; `stalled` says whether `stall_s` seconds went by without any."""

    def __init__(self, activity: Callable[[], Activity], now: float) -> None:
        self._activity = activity
        self._since = now
        self._sample: tuple[float, Activity] | None = None

    def alive(self, now: float) -> None:
        self._since = now
        self._sample = None

    def stalled(self, now: float, stall_s: float) -> bool:
        silent = now - self._since
        if self._sample is None:
            if silent >= stall_s / 2:
                self._sample = (now, self._activity())
            return False
        if silent < stall_s:
            return False
        taken_at, before = self._sample
        if _idle(before, self._activity(), now - taken_at):
            return True
        self._since, self._sample = taken_at, None
        return False


def _idle(before: Activity, after: Activity, seconds: float) -> bool:
    return (
        after.cpu_s - before.cpu_s < _IDLE_SHARE * seconds
        and after.io_bytes - before.io_bytes < _IDLE_BYTES * seconds
        and after.network_bytes - before.network_bytes < _IDLE_BYTES * seconds
    )
