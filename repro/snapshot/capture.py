"""Takes the snapshot: every collector at the same time, each in its own thread with its own deadline.

A thread that hangs cannot be ended in Python; it is a daemon and is left behind, and its fields are `unavailable` with
the reason. So one bad driver call costs its own fields and at most its own deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from repro.domain.fingerprint import Fact, Fingerprint
from repro.machine.clock import Clock, SystemClock
from repro.snapshot.collector import Collector, Context, reason_of
from repro.snapshot.command import CommandCollector
from repro.snapshot.gpu import GpuCollector
from repro.snapshot.host import HostCollector
from repro.snapshot.libraries import LibrariesCollector
from repro.snapshot.log import LogCollector, TriageCollector
from repro.snapshot.model_files import ModelFilesCollector
from repro.snapshot.names import fingerprint_of
from repro.snapshot.process import ProcessCollector
from repro.snapshot.source import SourceCollector


@dataclass(frozen=True)
class Snapshot:
    """One frozen scene, free of secrets. Times are Unix seconds; `missing` maps a fact's name to why it is missing."""

    id: str
    started: float
    ended: float
    facts: Mapping[str, Mapping[str, Fact]]
    fingerprint: Fingerprint
    triage: Mapping[str, Any] | None
    missing: Mapping[str, str] = field(default_factory=dict)
    masked: Mapping[str, int] = field(default_factory=dict)


def default_collectors() -> tuple[Collector, ...]:
    """All of them; the log comes first, before anything rotates."""
    return (
        LogCollector(),
        ProcessCollector(),
        GpuCollector(),
        HostCollector(),
        CommandCollector(),
        TriageCollector(),
        LibrariesCollector(),
        ModelFilesCollector(),
        SourceCollector(),
    )


def capture(context: Context, collectors: Sequence[Collector] | None = None, clock: Clock | None = None) -> Snapshot:
    """Freeze the scene. Never raises for a scene that is broken; what cannot be read is named in `missing`."""
    clock = clock or SystemClock()
    started = clock.now()
    learn_secrets(context)
    facts = collect_all(collectors or default_collectors(), context)
    diagnosis = facts.get("triage", {}).get("diagnosis")
    return Snapshot(
        id=context.folder.name if context.folder else snapshot_id(started),
        started=started,
        ended=clock.now(),
        facts=facts,
        fingerprint=fingerprint_of(facts),
        triage=diagnosis.value if diagnosis is not None and diagnosis.known else None,
        missing={
            f"{group}.{name}": fact.reason
            for group, members in facts.items()
            for name, fact in members.items()
            if not fact.known
        },
        masked=dict(context.redactor.counts),
    )


def collect_all(collectors: Sequence[Collector], context: Context) -> dict[str, dict[str, Fact]]:
    """The facts of each collector by its name, in the collectors' order."""
    runs = [_Run(collector, context) for collector in collectors]
    for run in runs:
        run.start()
    return {run.collector.name: run.facts() for run in runs}


def learn_secrets(context: Context) -> None:
    """Tell the redactor what argv and environment give away, before the log is read in which it may stand."""
    context.redactor.argv(context.server_argv())
    for command in (context.command, context.minimal):
        context.redactor.argv(command.argv() if command is not None else ())
    context.redactor.environment(context.environment)
    context.redactor.environment(context.server_environment())
    context.redactor.counts.clear()


def snapshot_id(now: float) -> str:
    """A name that sorts by time: `20261201T150203Z`."""
    return datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%dT%H%M%SZ")


class _Run:
    """One collector at work."""

    def __init__(self, collector: Collector, context: Context) -> None:
        self.collector = collector
        self._context = context
        self._facts: dict[str, Fact] | None = None
        self._error: BaseException | None = None
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._work, name=f"collect-{collector.name}", daemon=True)
        self._clock = SystemClock()

    def start(self) -> None:
        self._deadline = self._clock.monotonic() + self.collector.deadline
        self._thread.start()

    def facts(self) -> dict[str, Fact]:
        """Waits no longer than the deadline that began with the start."""
        self._thread.join(max(0.0, self._deadline - self._clock.monotonic()))
        if self._facts is not None:
            return self._facts
        if self._error is not None:
            reason = reason_of(self._error)
        else:
            reason = f"no answer within {self.collector.deadline:g} s"
        return dict.fromkeys(self.collector.fields, Fact.unavailable(self._context.redactor.text(reason)))

    def _work(self) -> None:
        try:
            self._facts = dict(self.collector.collect(self._context))
        except BaseException as error:  # told by facts(); a thread has nobody else to tell
            self._error = error
