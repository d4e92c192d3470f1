"""A collector that hangs or fails costs its own fields and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

import pytest

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.capture import capture, collect_all, default_collectors
from repro.snapshot.collector import Context


class Good:
    name = "good"
    fields = ("a",)
    deadline = 20.0

    def collect(self, context: Context) -> Mapping[str, Fact]:
        return {"a": Fact.measured(1)}


class Failing:
    name = "failing"
    fields = ("b", "c")
    deadline = 20.0

    def collect(self, context: Context) -> Mapping[str, Fact]:
        raise PermissionError(13, "denied", "/proc/1/maps with password=hunter2-hunter2")


class Hanging:
    name = "hanging"
    fields = ("d",)
    deadline = 0.2

    def __init__(self, release: threading.Event) -> None:
        self._release = release

    def collect(self, context: Context) -> Mapping[str, Fact]:
        self._release.wait(60)
        return {"d": Fact.measured("too late")}


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_one_bad_collector_costs_only_its_own_fields(release: threading.Event) -> None:
    begun = time.monotonic()
    snapshot = capture(Context(Redactor()), [Hanging(release), Failing(), Good()])
    assert time.monotonic() - begun < 10
    assert snapshot.facts["good"]["a"] == Fact.measured(1)
    assert snapshot.facts["hanging"]["d"] == Fact.unavailable("no answer within 0.2 s")
    assert set(snapshot.missing) == {"hanging.d", "failing.b", "failing.c"}
    assert "permission denied: /proc/1/maps" in snapshot.missing["failing.b"]
    assert "hunter2" not in snapshot.missing["failing.b"]
    assert snapshot.triage is None


def test_collectors_work_side_by_side(release: threading.Event) -> None:
    begun = time.monotonic()
    facts = collect_all([Hanging(release) for _ in range(10)], Context(Redactor()))
    assert time.monotonic() - begun < 1.5  # ten deadlines in a row would be two seconds
    assert not facts["hanging"]["d"].known


def test_a_host_with_nothing_gives_a_whole_snapshot() -> None:
    snapshot = capture(Context(Redactor()))
    for collector in default_collectors():
        assert set(snapshot.facts[collector.name]) == set(collector.fields)
    assert snapshot.facts["host"]["kernel"].known
    assert snapshot.missing["process.pid"] == "no process was named"
    assert snapshot.missing["log.copy"] == "no log was named"
    assert snapshot.missing["model_files.path"] == "no model was named"
    assert snapshot.started <= snapshot.ended
    assert "host.kernel" in snapshot.fingerprint.pinned
    assert "host.load" in snapshot.fingerprint.observed
