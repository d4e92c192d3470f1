"""The fingerprint that a search takes before each trial: cheap, and equal when nothing has moved.

Only what is pinned or observed is read: no log, no process, no source tree.
"""

from __future__ import annotations

from repro.domain.fingerprint import Fingerprint
from repro.snapshot.capture import collect_all
from repro.snapshot.collector import Collector, Context
from repro.snapshot.command import CommandCollector
from repro.snapshot.gpu import GpuCollector
from repro.snapshot.host import HostCollector
from repro.snapshot.libraries import LibrariesCollector
from repro.snapshot.model_files import ModelFilesCollector
from repro.snapshot.names import fingerprint_of


def pinned_collectors() -> tuple[Collector, ...]:
    """The collectors whose facts are compared between trials."""
    return (GpuCollector(), LibrariesCollector(), ModelFilesCollector(), CommandCollector(), HostCollector())


def pinned_facts(context: Context) -> Fingerprint:
    """The scene's fingerprint now; compare two with `repro.domain.fingerprint.moved`."""
    return fingerprint_of(collect_all(pinned_collectors(), context))
