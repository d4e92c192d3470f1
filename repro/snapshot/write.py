"""Writes a snapshot into its folder: two JSON documents and a page. Nothing is overwritten, everything is masked.

Collectors have masked their facts already; each document goes through the redactor once more, since a secret that one
collector learned may stand in what another read before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repro import __version__
from repro.errors import WorkspaceUnusable
from repro.redact.redactor import Redactor
from repro.snapshot.capture import Snapshot, snapshot_id
from repro.snapshot.page import page

SCHEMA_VERSION = 1


def new_folder(parent: Path, now: float) -> Path:
    """Create the folder of a snapshot begun at `now` (Unix seconds); a second one in that second gets `-2`."""
    name = snapshot_id(now)
    number = 1
    try:
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            folder = parent / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError:
                number += 1
            else:
                return folder
    except OSError as error:
        raise WorkspaceUnusable(
            f"The snapshot cannot be written to {parent}: {error.strerror or error}.",
            "Choose another workspace, or make this one writable.",
        ) from error


def write_snapshot(snapshot: Snapshot, folder: Path, redactor: Redactor) -> tuple[Path, ...]:
    """Write `fingerprint.json`, `snapshot.json` and `SNAPSHOT.md` beside the log's copy; returns all files there.

    Raises WorkspaceUnusable when one of them exists or cannot be written.
    """
    documents = {
        "fingerprint.json": _text(redactor.json(fingerprint_document(snapshot))),
        # The counts carry rules such as `password` as keys, whose numbers would be masked for their names.
        "snapshot.json": _text({**redactor.json(snapshot_document(snapshot)), "masked": dict(snapshot.masked)}),
        "SNAPSHOT.md": redactor.text(page(snapshot)),
    }
    for name, text in documents.items():
        try:
            with (folder / name).open("x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            raise WorkspaceUnusable(
                f"The snapshot's {name} cannot be written to {folder}: {error.strerror or error}.",
                "Nothing was overwritten. Take a new snapshot, or free space.",
            ) from error
    return tuple(sorted(folder.iterdir()))


def fingerprint_document(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON shape of `fingerprint.json`."""
    return {**_head("fingerprint"), "id": snapshot.id, "taken": snapshot.started, **snapshot.fingerprint.as_json()}


def snapshot_document(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON shape of `snapshot.json`: facts by collector, the diagnosis, what is missing, masks set by rule."""
    return {
        **_head("snapshot"),
        "id": snapshot.id,
        "started": snapshot.started,
        "ended": snapshot.ended,
        "triage": snapshot.triage,
        "facts": {
            group: {name: fact.as_json() for name, fact in sorted(members.items())}
            for group, members in snapshot.facts.items()
        },
        "missing": dict(snapshot.missing),
        "masked": dict(snapshot.masked),
    }


def _head(schema: str) -> dict[str, Any]:
    return {"schema": f"repro/{schema}", "version": SCHEMA_VERSION, "repro": __version__}


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
