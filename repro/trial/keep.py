"""Keeps what a bundle is made from: logs of stopped servers and request bodies, secrets masked, compressed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from repro.domain.request import RequestSet
from repro.redact.redactor import Redactor


class MaskedLogs:
    """Turns `server-001.log` into `server-001.log.gz`, line numbers as they were. Equal logs give equal bytes."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __call__(self, log: Path) -> Path:
        """The kept file. Constant memory; the raw log goes only once the kept one is whole."""
        kept = log.with_name(log.name + ".gz")
        if not log.exists():
            return kept
        # mtime 0 and no name: nothing in the archive but the log itself.
        with (
            log.open(encoding="utf-8", errors="replace", newline="\n") as raw,
            kept.open("wb") as out,
            gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed,
        ):
            for line in self._redactor.lines(raw):
                packed.write(line.encode())
        log.unlink(missing_ok=True)
        return kept


# A prompt of a million tokens is about 4 MB; 64 of them at once would fill a disk, and they differ in their tail alone.
MOST_BYTES = 32 * 1024 * 1024


class KeptRequests:
    """Writes the requests of each trial to `<trial id>.json.gz`: {path, at_once, bodies, omitted}, secrets masked."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._folder = folder
        self._redactor = redactor

    def __call__(self, trial_id: str, requests: RequestSet) -> None:
        """Keeps the bodies in order until MOST_BYTES are full; `omitted` counts the rest. Never overwrites."""
        path = self._folder / f"{trial_id}.json.gz"
        if path.exists():
            return  # an earlier try of this trial, built in the same way
        bodies: list[object] = []
        size = 0
        for request in requests.requests:
            size += len(request.body_json)
            if bodies and size > MOST_BYTES:
                break
            bodies.append(self._redactor.json(request.body))
        document = {
            "path": requests.requests[0].path if requests.requests else "",
            "at_once": requests.at_once,
            "bodies": bodies,
            "omitted": len(requests.requests) - len(bodies),
        }
        self._folder.mkdir(exist_ok=True)
        # Whole or not at all: a kill in between must not leave half a file that the next try would take for whole.
        begun = path.with_name(path.name + ".part")
        with begun.open("wb") as out, gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
            packed.write(json.dumps(document, ensure_ascii=False).encode())
        begun.replace(path)
