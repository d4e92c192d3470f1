"""Ends what a killed repro left running, and nothing else: only servers on record whose owner is no longer alive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from repro.machine.clock import Clock
from repro.machine.family import end_family, find_family
from repro.machine.processes import same_process
from repro.runner.record import ServerRecord, mark_ended, open_records

# A child of an owner killed between fork and exec shows its mark only after the exec, some milliseconds later.
_SETTLE_S = 0.25
_TERMINATE_S = 5.0


@dataclass(frozen=True)
class Swept:
    """A server left behind: the pids that were ended and those that would not end (the record then stays open)."""

    id: str
    ended: tuple[int, ...]
    left: tuple[int, ...] = ()


def sweep(servers_dir: Path, clock: Clock, terminate_s: float = _TERMINATE_S) -> tuple[Swept, ...]:
    """End the families of all orphaned servers on record. Servers of a living repro are left alone."""
    orphans = [r for r in open_records(servers_dir) if not same_process(r.owner.pid, r.owner.started)]
    if not orphans:
        return ()
    seen = {record.id: _pids(record) for record in orphans}
    if not all(seen.values()):
        clock.sleep(_SETTLE_S)
    swept = []
    for record in orphans:
        pids = tuple(sorted(set(seen[record.id]) | set(_pids(record))))
        left = end_family(record.signs, clock, terminate_s)
        if not left:
            mark_ended(servers_dir, record, clock.now())
        swept.append(Swept(record.id, tuple(pid for pid in pids if pid not in left), left))
    return tuple(swept)


def _pids(record: ServerRecord) -> tuple[int, ...]:
    return tuple(ref.pid for ref in find_family(record.signs))
