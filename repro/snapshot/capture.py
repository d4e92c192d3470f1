"""Takes the snapshot: every collector at the same time, each in its own thread with its own deadline.

A thread that hangs cannot be ended in Python; it is a daemon and is left behind, and its fields are `unavailable` with
the reason. So one bad driver call costs its own fields and at most its own deadline.

Those that read the whole log a second time (`READS_LOG`) begin when the quick ones are done: three threads that
compute would starve one that asks the kernel a hundred small questions, and the facts would no longer be of one moment.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from repro.domain.fingerprint import Fact, FactDifference, Fingerprint, compare
from repro.machine.clock import Clock, SystemClock
from repro.machine.containers import argv_of, environment_of
from repro.snapshot.collector import Collector, Context, reason_of
from repro.snapshot.command import CommandCollector
from repro.snapshot.configuration import ConfigurationCollector
from repro.snapshot.container import ContainerCollector
from repro.snapshot.gpu import GpuCollector
from repro.snapshot.host import HostCollector
from repro.snapshot.inside import InsideCollector
from repro.snapshot.kernel import KernelCollector
from repro.snapshot.libraries import LibrariesCollector
from repro.snapshot.log import LogCollector, TriageCollector
from repro.snapshot.model_files import HashingModelFilesCollector, ModelFilesCollector
from repro.snapshot.names import CONFIGURED, OBSERVED, PINNED, SEEN, fingerprint_of
from repro.snapshot.process import ProcessCollector
from repro.snapshot.request import RequestCollector
from repro.snapshot.serving import ServingCollector
from repro.snapshot.source import SourceCollector

READS_LOG = frozenset({"triage", "serving", "configuration"})
# These wait for a disk or for another process and starve nobody.
_UNHURRIED = frozenset({"log", "inside", "model_files"})
# Facts that belong together are taken together; beyond this they are told to be apart.
APART_S = 10.0
UNWRITTEN = "now"
"""The id of a snapshot that is kept nowhere."""


@dataclass(frozen=True)
class Snapshot:
    """One frozen scene, free of secrets. Times are Unix seconds; `missing` maps a fact's name to why it is missing.

    `taken` says when each collector ended. `changed` holds what differs from `previous`, an earlier snapshot's id.
    """

    id: str
    started: float
    ended: float
    facts: Mapping[str, Mapping[str, Fact]]
    fingerprint: Fingerprint
    triage: Mapping[str, Any] | None
    missing: Mapping[str, str] = field(default_factory=dict)
    masked: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, float] = field(default_factory=dict)
    previous: str | None = None
    changed: tuple[FactDifference, ...] = ()

    def fact(self, name: str) -> Fact:
        """The fact of a dotted name; unavailable where its collector did not run."""
        group, _, short = name.partition(".")
        return self.facts.get(group, {}).get(short, Fact.unavailable("not collected"))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the reader must know before comparing facts of this snapshot with each other."""
        host, container = self.taken.get("host"), self.taken.get("container")
        if host is None or container is None or abs(host - container) <= APART_S:
            return ()
        return (f"the facts of host and container were taken {abs(host - container):.0f} s apart",)


def default_collectors(*, ask_inside: bool = True, hash_weights: bool = False) -> tuple[Collector, ...]:
    """All of them; the log comes first, before anything rotates. `ask_inside` runs the server's own interpreter."""
    return (
        LogCollector(),
        ContainerCollector(),
        ProcessCollector(),
        GpuCollector(),
        HostCollector(),
        KernelCollector(),
        CommandCollector(),
        RequestCollector(),
        LibrariesCollector(),
        *((InsideCollector(),) if ask_inside else ()),
        HashingModelFilesCollector() if hash_weights else ModelFilesCollector(),
        SourceCollector(),
        TriageCollector(),
        ServingCollector(),
        ConfigurationCollector(),
    )


def capture(
    context: Context,
    collectors: Sequence[Collector] | None = None,
    clock: Clock | None = None,
    previous: tuple[str, Fingerprint] | None = None,
) -> Snapshot:
    """Freeze the scene. Never raises for a scene that is broken; what cannot be read is named in `missing`.

    `previous` is an earlier snapshot's id and fingerprint, to compare with.
    """
    clock = clock or SystemClock()
    started = clock.now()
    learn_secrets(context)
    facts, taken = _collected(collectors or default_collectors(), context, clock)
    diagnosis = facts.get("triage", {}).get("diagnosis")
    fingerprint = fingerprint_of(facts, (*PINNED, *CONFIGURED), (*OBSERVED, *SEEN))
    return Snapshot(
        id=context.folder.name if context.folder else UNWRITTEN,
        started=started,
        ended=clock.now(),
        facts=facts,
        fingerprint=fingerprint,
        triage=diagnosis.value if diagnosis is not None and diagnosis.known else None,
        missing={
            f"{group}.{name}": fact.reason
            for group, members in facts.items()
            for name, fact in members.items()
            if not fact.known
        },
        masked=dict(context.redactor.counts),
        taken=taken,
        previous=previous[0] if previous else None,
        changed=_changed(previous[1], fingerprint) if previous else (),
    )


def _changed(before: Fingerprint, now: Fingerprint) -> tuple[FactDifference, ...]:
    """Differences of what both have looked at: a collector that did not run says nothing."""
    return tuple(each for each in compare(before, now) if each.before is not None and each.now is not None)


def collect_all(collectors: Sequence[Collector], context: Context) -> dict[str, dict[str, Fact]]:
    """The facts of each collector by its name, in the collectors' order."""
    return _collected(collectors, context, SystemClock())[0]


def _collected(
    collectors: Sequence[Collector], context: Context, clock: Clock
) -> tuple[dict[str, dict[str, Fact]], dict[str, float]]:
    runs = [_Run(collector, context, clock) for collector in collectors]
    quick = [run for run in runs if run.collector.name not in READS_LOG]
    for run in quick:
        run.start()
    for run in quick:
        if run.collector.name not in _UNHURRIED:
            run.wait()
    for run in runs:
        if run not in quick:
            run.start()
    facts = {run.collector.name: run.facts() for run in runs}
    return facts, {run.collector.name: run.ended for run in runs if run.ended is not None}


def learn_secrets(context: Context) -> None:
    """Tell the redactor what argv and environment give away, before the log is read in which it may stand."""
    context.redactor.argv(context.server_argv())
    for command in (context.command, context.minimal):
        context.redactor.argv(command.argv() if command is not None else ())
    if context.container is not None:
        context.redactor.argv(argv_of(context.container))
        context.redactor.environment(environment_of(context.container))
    context.redactor.environment(context.environment)
    context.redactor.environment(context.server_environment())
    context.redactor.counts.clear()


class _Run:
    """One collector at work."""

    def __init__(self, collector: Collector, context: Context, clock: Clock) -> None:
        self.collector = collector
        self.ended: float | None = None
        self._context, self._clock = context, clock
        self._facts: dict[str, Fact] | None = None
        self._error: BaseException | None = None
        self._deadline = 0.0
        self._thread = threading.Thread(target=self._work, name=f"collect-{collector.name}", daemon=True)
        self._real = SystemClock()  # deadlines are the machine's, whatever clock stamps the facts

    def start(self) -> None:
        self._deadline = self._real.monotonic() + self.collector.deadline
        self._thread.start()

    def wait(self) -> None:
        """Waits no longer than the deadline that began with the start."""
        self._thread.join(max(0.0, self._deadline - self._real.monotonic()))

    def facts(self) -> dict[str, Fact]:
        """The facts, or why there are none."""
        self.wait()
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
        self.ended = self._clock.now()
