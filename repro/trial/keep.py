"""Keeps the log of a stopped server: secrets masked, compressed, line numbers as they were; the raw file goes."""

from __future__ import annotations

import gzip
from pathlib import Path

from repro.redact.redactor import Redactor


class MaskedLogs:
    """Turns `server-001.log` into `server-001.log.gz`. Equal logs give equal bytes."""

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
        log.unlink()
        return kept
