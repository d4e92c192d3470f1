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
from repro.domain.fingerprint import FactDifference, Fingerprint
from repro.errors import InvalidFile, WorkspaceUnusable
from repro.redact.redactor import Redactor
from repro.snapshot.capture import Snapshot
from repro.snapshot.page import page

SCHEMA_VERSION = 1
FINGERPRINT, FACTS, PAGE = "fingerprint.json", "snapshot.json", "SNAPSHOT.md"


def write_snapshot(snapshot: Snapshot, folder: Path, redactor: Redactor) -> tuple[Path, ...]:
    """Write `fingerprint.json`, `snapshot.json` and `SNAPSHOT.md` beside the log's copy; returns all files there.

    Raises WorkspaceUnusable when one of them exists or cannot be written.
    """
    documents = {
        FINGERPRINT: _text(redactor.json(fingerprint_document(snapshot))),
        # The counts carry rules such as `password` as keys, whose numbers would be masked for their names.
        FACTS: _text({**redactor.json(snapshot_document(snapshot)), "masked": dict(snapshot.masked)}),
        PAGE: redactor.text(page(snapshot)),
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
        "taken": dict(snapshot.taken),
        "warnings": list(snapshot.warnings),
        "previous": snapshot.previous,
        "changed": [_difference(found) for found in snapshot.changed],
        "missing": dict(snapshot.missing),
        "masked": dict(snapshot.masked),
    }


def _difference(found: FactDifference) -> dict[str, Any]:
    return {
        "name": found.name,
        "pinned": found.pinned,
        "before": found.before.as_json() if found.before is not None else None,
        "now": found.now.as_json() if found.now is not None else None,
    }


def read_fingerprint(folder: Path) -> Fingerprint:
    """The fingerprint that a snapshot's folder holds. Raises InvalidFile where it cannot be read."""
    path = folder / FINGERPRINT
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != SCHEMA_VERSION:
            raise InvalidFile(f"{path}: version {document['version']!r} is not {SCHEMA_VERSION}", "use a newer repro")
        return Fingerprint.from_json(document)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(f"{path}: no fingerprint of a snapshot: {error}", "name another snapshot") from error


def _head(schema: str) -> dict[str, Any]:
    return {"schema": f"repro/{schema}", "version": SCHEMA_VERSION, "repro": __version__}


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
