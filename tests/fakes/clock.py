"""A clock that stands still until someone sleeps; nobody really waits."""

from __future__ import annotations

from collections.abc import Callable


class FakeClock:
    """`sleep` moves the time; `on_sleep` lets a test make something happen while time passes."""

    def __init__(self, now: float = 1_800_000_000.0, on_sleep: Callable[[float], None] | None = None) -> None:
        self.begun = now
        self.passed = 0.0
        self.sleeps: list[float] = []
        self._on_sleep = on_sleep

    def now(self) -> float:
        return self.begun + self.passed

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.passed += seconds
        if self._on_sleep is not None:
            self._on_sleep(seconds)
