"""Time as a parameter: a port with the machine's clock behind it, so that tests need not wait."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What every wait in repro asks for time."""

    def now(self) -> float:
        """Unix time in seconds; may jump when the machine's clock is set."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back. For durations and deadlines."""

    def sleep(self, seconds: float) -> None:
        """Let this much time pass."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
