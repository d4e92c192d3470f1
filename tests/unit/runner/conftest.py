"""A clock that only moves when somebody sleeps, and a server that is a script of what happens when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from repro.machine.family import Activity
from repro.runner.port import Ending, Event, StopReport
from repro.triage import ExitEvidence


class FakeClock:
    """Sleeping is the only thing that takes time, and lets what was planned for that time happen."""

    def __init__(self) -> None:
        self.time = 0.0
        self.plans: list[tuple[float, Callable[[], None]]] = []

    def now(self) -> float:
        return 1_700_000_000.0 + self.time

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        assert seconds > 0, "a wait that takes no time never ends"
        self.time += seconds
        due = [plan for plan in self.plans if plan[0] <= self.time]
        self.plans = [plan for plan in self.plans if plan[0] > self.time]
        for _, happens in due:
            happens()

    def at(self, time: float, happens: Callable[[], None]) -> None:
        self.plans.append((time, happens))
        self.plans.sort(key=lambda plan: plan[0])


@dataclass
class FakeServer:
    log: Path
    clock: FakeClock
    evidence: ExitEvidence | None = None
    cpu_share: float = 0.0
    said: tuple[str, ...] = ()
    other: str | None = None
    id: str = "fake"
    base_url: str = "http://127.0.0.1:1"

    def prints(self, time: float, *lines: str) -> None:
        def write() -> None:
            with self.log.open("a") as file:
                file.write("".join(f"{line}\n" for line in lines))

        self.clock.at(time, write)

    def ends(self, time: float, code: int) -> None:
        def end() -> None:
            self.evidence = ExitEvidence(code)

        self.clock.at(time, end)

    def exit_evidence(self) -> ExitEvidence | None:
        return self.evidence

    def stop(self) -> StopReport:
        return StopReport(Ending.INTERRUPTED, 0, 0.0)

    def activity(self) -> Activity:
        return Activity(self.cpu_share * self.clock.time)

    def where_it_waits(self) -> tuple[str, ...]:
        return ("7 VLLM::EngineCore sleeping in futex_wait_queue",)

    def stranger(self) -> str | None:
        return self.other

    def notes(self) -> tuple[str, ...]:
        return self.said


@dataclass
class ReadyAt:
    """Readiness from a moment on."""

    clock: FakeClock
    time: float = float("inf")

    def check(self, base_url: str) -> str | None:
        return None if self.clock.time >= self.time else "/health: refused"


@dataclass
class Recorder:
    events: list[Event] = field(default_factory=list)

    def told(self, event: Event) -> None:
        self.events.append(event)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(tmp_path: Path, clock: FakeClock) -> FakeServer:
    return FakeServer(tmp_path / "server.log", clock)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def ready_at(clock: FakeClock) -> Callable[[float], ReadyAt]:
    return lambda time: ReadyAt(clock, time)
