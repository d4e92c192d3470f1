"""The workspace `.repro/`: found upwards like `.git`, made where none is, used by one search at a time.

    .repro/lock              held (flock) while a search runs; names who holds it
    .repro/servers/          a record for every server that repro started, for the sweep after a `kill -9`
    .repro/sessions/<id>/    one search: session.json, scenario.toml, journal.jsonl, history/, logs/
    .repro/runs/<id>/        one `repro run`
    .repro/snapshots/<id>/   one `repro snapshot`

Nothing in it is ever overwritten: every id is new.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from repro.errors import UsageError, WorkspaceBusy, WorkspaceUnusable

FOLDER = ".repro"
KINDS = ("sessions", "runs", "snapshots")


@dataclass(frozen=True)
class Workspace:
    """A usable workspace; `root` is the `.repro` folder itself."""

    root: Path

    @staticmethod
    def open(start: Path) -> Workspace:
        """The workspace at or above `start`, or a new one there. Raises WorkspaceUnusable."""
        found = find(start)
        root = found if found is not None else start / FOLDER
        try:
            root.mkdir(mode=0o700, exist_ok=True)  # logs and requests are nobody else's business
            for kind in (*KINDS, "servers"):
                (root / kind).mkdir(exist_ok=True)
            if not (root / ".gitignore").exists():
                (root / ".gitignore").write_text("*\n", encoding="utf-8")
            (root / "lock").touch()
        except OSError as error:
            raise WorkspaceUnusable(
                f"the workspace {root} cannot be written: {error.strerror or error}",
                "run repro in a folder that you may write, or free space there; everything is kept below .repro/",
            ) from error
        return Workspace(root)

    @property
    def servers(self) -> Path:
        return self.root / "servers"

    def new(self, kind: str, now: float) -> Path:
        """A new folder for one session, run or snapshot, named by UTC time; a suffix tells two of one second apart."""
        stem = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%d-%H%M%S")
        for attempt in range(1000):
            path = self.root / kind / (stem if attempt == 0 else f"{stem}-{attempt}")
            try:
                path.mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                raise WorkspaceUnusable(
                    f"{path} cannot be made: {error.strerror or error}", "free space or permissions, then again"
                ) from error
            return path
        raise WorkspaceUnusable(f"a thousand {kind} in one second below {self.root}", "wait a second")

    def existing(self, kind: str, name: str | None) -> Path:
        """The folder of that id, or the newest of its kind. Raises UsageError naming what there is."""
        ids = sorted((p.name for p in (self.root / kind).iterdir() if p.is_dir()), key=_age)
        if name is None and ids:
            return self.root / kind / ids[-1]
        if name in ids:
            return self.root / kind / str(name)
        missing = f"no {kind[:-1]} {name or ''} in {self.root}".replace("  ", " ")
        known = f"there are: {', '.join(ids[-5:])}"
        raise UsageError(missing, known if ids else "there is none yet in this folder or above it: begin one here")

    @contextmanager
    def locked(self, what: str) -> Iterator[None]:
        """Holds the workspace for one search; raises WorkspaceBusy naming the holder. It dies with its process."""
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                holder = os.read(descriptor, 500).decode("utf-8", "replace") or "another process"
                raise WorkspaceBusy(
                    f"the workspace {self.root} is in use by {_said(holder)}",
                    "wait for it, or run in another folder; two searches at once would take each other's GPUs",
                ) from error
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps({"pid": os.getpid(), "what": what}).encode())
            yield
        finally:
            os.close(descriptor)


def find(start: Path) -> Path | None:
    """The nearest `.repro` folder at or above `start`."""
    for folder in (start, *start.parents):
        if (folder / FOLDER).is_dir():
            return folder / FOLDER
    return None


def _age(name: str) -> tuple[str, int]:
    """Ids of one second in the order they were made: `-10` is younger than `-2`."""
    stem, _, number = name[15:].partition("-")
    return name[:15] + stem, int(number) if number.isdigit() else 0


def _said(holder: str) -> str:
    try:
        facts = json.loads(holder)
        return f"{facts['what']} (pid {facts['pid']})"
    except (ValueError, KeyError, TypeError):
        return holder.strip() or "another process"
