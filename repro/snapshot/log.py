"""The log: its copy, redacted and compressed in constant memory, and what triage reads in it.

Two collectors, since the copy must not be lost when reading takes too long. The copy holds the file open from the first
moment and stops at the size it had then, so a rotation by renaming cannot take it away.
"""

from __future__ import annotations

import gzip
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from repro.domain.fingerprint import Fact
from repro.machine.clock import Clock, SystemClock
from repro.snapshot.collector import Context

COPY_NAME = "server.log.gz"
_LONGEST_LINE = 1 << 20  # bytes; a longer one is redacted in parts, so that memory stays constant
# Fast compression: a log shrinks to a tenth either way, and redaction is the slower part.
_COMPRESSION = 1
_SHARE_FOR_COPYING = 0.9  # of the deadline; the rest is for closing the archive properly


class LogCollector:
    """Copies the log into the context's folder, as `server.log.gz`."""

    name = "log"
    fields = ("path", "bytes", "lines", "copy")

    def __init__(self, deadline: float = 600.0, clock: Clock | None = None) -> None:
        self.deadline = deadline
        self._clock = clock or SystemClock()

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`bytes` is the size when the capture began; `copy` tells when not all of it is in the copy."""
        if context.log is None:
            return dict.fromkeys(self.fields, Fact.unavailable("no log was named"))
        # Without O_NONBLOCK opening a named pipe would wait for a writer.
        descriptor = os.open(context.log, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            return dict.fromkeys(self.fields, Fact.unavailable(f"{context.log} is not a regular file"))
        with os.fdopen(descriptor, "rb") as log:
            facts = {
                "path": Fact.measured(context.redactor.text(str(context.log))),
                "bytes": Fact.measured(status.st_size),
            }
            if context.folder is None:
                reason = Fact.unavailable("nothing is written in this capture")
                return {**facts, "lines": reason, "copy": reason}
            return {**facts, **self._copy(log, status.st_size, context, context.folder / COPY_NAME)}

    def _copy(self, log: BinaryIO, size: int, context: Context, target: Path) -> Mapping[str, Fact]:
        until = self._clock.monotonic() + self.deadline * _SHARE_FOR_COPYING
        reader = _Lines(log, size, lambda: self._clock.monotonic() < until)
        with target.open("xb") as raw, gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as archive:
            for line in context.redactor.lines(reader):
                archive.write(line.encode("utf-8", "surrogateescape"))
        if reader.read == size:
            return {"lines": Fact.measured(reader.lines), "copy": Fact.measured(COPY_NAME)}
        why = "the log was truncated while it was copied" if reader.ended else "the time for copying was over"
        partial = Fact.measured(COPY_NAME, f"only the first {reader.read} of {size} bytes: {why}")
        return {"lines": Fact.measured(reader.lines, "of the part that was copied"), "copy": partial}


class _Lines:
    """The lines of the first `size` bytes, undecodable bytes kept; counts what it has read."""

    def __init__(self, log: BinaryIO, size: int, may_go_on: Callable[[], bool]) -> None:
        self.read = 0
        self.lines = 0
        self.ended = False
        self._log, self._size, self._may_go_on = log, size, may_go_on

    def __iter__(self) -> Iterator[str]:
        while self.read < self._size and self._may_go_on():
            line = self._log.readline(min(_LONGEST_LINE, self._size - self.read))
            if not line:
                self.ended = True
                return
            self.read += len(line)
            self.lines += line.endswith(b"\n") or self.read == self._size
            yield line.decode("utf-8", "surrogateescape")


def _diagnose(path: Path) -> Mapping[str, Any]:
    from repro.triage import triage_file

    return triage_file(path).as_json()


class TriageCollector:
    """The first failing stage and the root line; `diagnose` reads a log file into the JSON shape of a diagnosis."""

    name = "triage"
    deadline = 120.0
    fields = ("diagnosis",)

    def __init__(self, diagnose: Callable[[Path], Mapping[str, Any]] = _diagnose) -> None:
        self._diagnose = diagnose

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`diagnosis` has the keys of `repro triage --json`."""
        if context.log is None:
            return {"diagnosis": Fact.unavailable("no log was named")}
        if not context.log.is_file():
            return {"diagnosis": Fact.unavailable(f"{context.log} is not a regular file")}
        return {"diagnosis": Fact.measured(context.redactor.json(self._diagnose(context.log)))}
