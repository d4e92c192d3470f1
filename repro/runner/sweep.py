"""Ends what a killed repro left running, and nothing else: only servers on record whose owner is no longer alive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from repro.machine.clock import Clock
from repro.machine.family import end_family
from repro.machine.processes import same_process
from repro.runner.record import mark_ended, open_records

_TERMINATE_S = 5.0


@dataclass(frozen=True)
class Swept:
    """A server left behind: the pids that were ended and those that would not end.

    `gone` is False where something of it is still there; its record then stays open for the next sweep.
    """

    id: str
    ended: tuple[int, ...]
    left: tuple[int, ...] = ()
    gone: bool = True


def sweep(servers_dir: Path, clock: Clock, terminate_s: float = _TERMINATE_S) -> tuple[Swept, ...]:
    """End the families of all orphaned servers on record. Servers of a living repro are left alone."""
    swept = []
    for record in open_records(servers_dir):
        if same_process(record.owner.pid, record.owner.started):
            continue
        end = end_family(record.signs, clock, terminate_s)
        if end.gone:
            mark_ended(servers_dir, record, clock.now())
        swept.append(Swept(record.id, end.ended, end.left, end.gone))
    return tuple(swept)
