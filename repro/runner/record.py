"""One file a server, written before it is started: what a later command needs to find it should repro be killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repro.machine.family import FamilySigns
from repro.machine.processes import ProcessRef

# In the environment of every process of a server; its value is the server's id.
MARK = "REPRO_SERVER_ID"


@dataclass(frozen=True)
class ServerRecord:
    """`owner` is the repro that started the server, `argv` is redacted, times are Unix seconds.

    `ended` is None until the server and its whole family are known to be gone. `client` is the container program
    (("docker",)) of a server that is a container and empty for a process, `daemon` the variables that say which daemon
    it speaks to, `image` the id of the container's image.
    """

    id: str
    launch: str
    argv: tuple[str, ...]
    log: str
    owner: ProcessRef
    started: float
    ended: float | None = None
    client: tuple[str, ...] = ()
    daemon: tuple[tuple[str, str], ...] = ()
    image: str | None = None

    @property
    def container_name(self) -> str:
        return f"repro-{self.id}"

    @property
    def signs(self) -> FamilySigns:
        return FamilySigns(MARK, self.id, Path(self.log))


def write_record(folder: Path, record: ServerRecord) -> None:
    """Write or replace, on the disk before this returns: either the old or the new record survives any kill."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{record.id}.{os.getpid()}"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(asdict(record), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / f"{record.id}.json")
    _sync_folder(folder)


def mark_ended(folder: Path, record: ServerRecord, now: float) -> None:
    write_record(folder, replace(record, ended=now))


def open_records(folder: Path) -> Iterator[ServerRecord]:
    """The records of servers not known to be gone, in name order; files that are no record are passed over."""
    for path in sorted(folder.glob("*.json")):
        record = _read(path)
        if record is not None and record.ended is None:
            yield record


def _read(path: Path) -> ServerRecord | None:
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        fields["owner"] = ProcessRef(**fields["owner"])
        fields["argv"] = tuple(fields["argv"])
        fields["client"] = tuple(fields.get("client", ()))
        fields["daemon"] = tuple((name, value) for name, value in fields.get("daemon", ()))
        return ServerRecord(**fields)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
