"""Ends what a killed repro left running, and nothing else: only servers on record whose owner is no longer alive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro.errors import ReproError
from repro.machine.clock import Clock
from repro.machine.docker_engine import DAEMON_NAMES, ContainerClient
from repro.machine.family import end_family, find_family
from repro.machine.processes import same_process
from repro.runner.container_command import LABEL
from repro.runner.container_end import end_container
from repro.runner.record import ServerRecord, mark_ended, open_records

_TERMINATE_S = 5.0


@dataclass(frozen=True)
class Orphan:
    """A server on record whose owner is gone, before anything is done about it: pids and container ids still there.

    `unknown` says why its containers cannot be told (no daemon).
    """

    id: str
    argv: tuple[str, ...]
    log: str
    pids: tuple[int, ...] = ()
    containers: tuple[str, ...] = ()
    unknown: str = ""


@dataclass(frozen=True)
class Swept:
    """A server left behind: the pids that were ended, those that would not end, the containers that were removed.

    `gone` is False where something of it may still be there; its record then stays open for the next sweep, and
    `problem` says why.
    """

    id: str
    ended: tuple[int, ...]
    left: tuple[int, ...] = ()
    gone: bool = True
    containers: tuple[str, ...] = ()
    problem: str = ""


def sweep(servers_dir: Path, clock: Clock, terminate_s: float = _TERMINATE_S) -> tuple[Swept, ...]:
    """End the families and remove the containers of all orphaned servers on record.

    Servers of a living repro are left alone.
    """
    return tuple(_swept(record, servers_dir, clock, terminate_s) for record in _orphaned(servers_dir))


def orphans(servers_dir: Path) -> tuple[Orphan, ...]:
    """What `sweep` would look after; nothing is touched."""
    return tuple(_listed(record) for record in _orphaned(servers_dir))


def _orphaned(servers_dir: Path) -> Iterator[ServerRecord]:
    return (r for r in open_records(servers_dir) if not same_process(r.owner.pid, r.owner.started))


def _swept(record: ServerRecord, servers_dir: Path, clock: Clock, terminate_s: float) -> Swept:
    if record.client:
        try:
            taken = end_container(record, _client(record), servers_dir, clock)
        except ReproError as error:
            return Swept(record.id, (), gone=False, problem=error.message)
        return Swept(record.id, (), gone=taken.gone, containers=taken.removed)
    end = end_family(record.signs, clock, terminate_s)
    if end.gone:
        mark_ended(servers_dir, record, clock.now())
    return Swept(record.id, end.ended, end.left, end.gone)


def _client(record: ServerRecord) -> ContainerClient:
    """Speaks to the daemon that the server was started by, whatever this shell says now."""
    other = {name: value for name, value in os.environ.items() if name not in DAEMON_NAMES}
    return ContainerClient(record.client, {**other, **dict(record.daemon)})


def _listed(record: ServerRecord) -> Orphan:
    pids = tuple(ref.pid for ref in find_family(record.signs))
    if not record.client:
        return Orphan(record.id, record.argv, record.log, pids)
    try:
        found = _client(record).labelled(f"{LABEL}={record.id}")
    except ReproError as error:
        return Orphan(record.id, record.argv, record.log, pids, unknown=error.message)
    return Orphan(record.id, record.argv, record.log, pids, found)
