"""The log: its copy, redacted and compressed in constant memory, and what triage reads in it.

Two collectors, since the copy must not be lost when reading takes too long.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from repro.domain.fingerprint import Fact
from repro.errors import ReproError
from repro.machine.clock import Clock, SystemClock
from repro.snapshot.collector import Context, attempt, reason_of
from repro.snapshot.log_source import LogSource, lines_of, numbered
from repro.triage import Diagnosis, ExitEvidence, Triage

COPY_NAME = "server.log.gz"
# Fast compression: a log shrinks to a tenth either way, and redaction is the slower part.
_COMPRESSION = 1
LONGEST_PART = 256 << 10  # bytes of a line that are masked at once; the redactor looks at 64 lines together
_SHARE_OF_TIME = 0.9  # of the deadline; the rest is for closing the archive properly
# Of a very large log triage reads both ends: how the server began, and what happened before it died.
_HEAD, _TAIL = 64 << 20, 128 << 20  # bytes
NO_LOG = "no log was named"
_AROUND, _CONSEQUENCES = 5, 20  # lines before and after the root, lines that follow from it
_REACH = 2000  # lines from the root within which consequences are shown
_KEY_LINES = 200  # the longest private key
_LONGEST_SHOWN = 8192  # characters


class LogCollector:
    """Copies the log into the context's folder, as `server.log.gz`."""

    name = "log"
    fields = ("path", "bytes", "lines", "copy", "elsewhere")

    def __init__(self, deadline: float = 600.0, clock: Clock | None = None) -> None:
        self.deadline = deadline
        self._clock = clock or SystemClock()

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`bytes` is the size when the capture began; `copy` tells when not all of it is in the copy."""
        elsewhere = Fact.measured(context.log_hint or None)
        if context.log is None:
            missing = Fact.unavailable(context.log_hint or NO_LOG)
            return {**dict.fromkeys(self.fields, missing), "elsewhere": elsewhere}
        facts = {"path": Fact.measured(context.redactor.text(context.log.name)), "elsewhere": elsewhere}
        if context.folder is None:
            reason = Fact.unavailable("nothing is written in this capture")
            return {**facts, "bytes": reason, "lines": reason, "copy": reason}
        return {**facts, **self._copy(context.log, context, context.folder / COPY_NAME)}

    def _copy(self, log: LogSource, context: Context, target: Path) -> Mapping[str, Fact]:
        until = self._clock.monotonic() + self.deadline * _SHARE_OF_TIME
        chunks = log.chunks()
        first = next(chunks, b"")  # what cannot be read leaves no empty archive behind
        reader = _Lines(first, chunks, lambda: self._clock.monotonic() < until)
        with target.open("xb") as raw, gzip.GzipFile("", "wb", _COMPRESSION, raw, mtime=0) as archive:
            for line in context.redactor.lines(reader):
                archive.write(line.encode("utf-8", "surrogateescape"))
        size = log.size if log.size is not None else reader.read
        facts = {"bytes": Fact.measured(size), "lines": Fact.measured(reader.lines)}
        if reader.whole and reader.read == size:
            return {**facts, "copy": Fact.measured(COPY_NAME)}
        why = "the log was truncated while it was copied" if reader.whole else reader.broken
        why = context.redactor.text(why or "the time for copying was over")
        of = f" of {size}" if log.size is not None else ""
        partial = Fact.measured(COPY_NAME, f"only the first {reader.read}{of} bytes: {why}")
        return {**facts, "lines": Fact.measured(reader.lines, "of the part that was copied"), "copy": partial}


class _Lines:
    """The lines of a log, undecodable bytes kept; counts what it has read. `whole`: the source had no more.

    `broken` says what went wrong in the middle (a daemon that stopped): what was read until then is kept.
    """

    def __init__(self, first: bytes, chunks: Iterator[bytes], may_go_on: Callable[[], bool]) -> None:
        self.read = 0
        self.lines = 0
        self.whole = False
        self.broken = ""
        self._first, self._chunks, self._may_go_on = first, chunks, may_go_on
        self._last = b"\n"

    def __iter__(self) -> Iterator[str]:
        for line in lines_of(self._bytes(), LONGEST_PART):
            self.lines += line.endswith(b"\n")
            self._last = line
            yield line.decode("utf-8", "surrogateescape")
        self.lines += not self._last.endswith(b"\n")

    def _bytes(self) -> Iterator[bytes]:
        chunk = self._first
        while chunk:
            if not self._may_go_on():
                return
            self.read += len(chunk)
            yield chunk
            try:
                chunk = next(self._chunks, b"")
            except (OSError, LookupError, ReproError) as error:
                self.broken = reason_of(error)
                return
        self.whole = True


class TriageCollector:
    """The first failing stage and the root line; `new` makes what is fed with the log."""

    name = "triage"
    deadline = 120.0
    fields = ("diagnosis", "context")

    def __init__(self, new: Callable[[], Triage] = Triage, clock: Clock | None = None) -> None:
        self._new = new
        self._clock = clock or SystemClock()

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`diagnosis` has the keys of `repro triage --json`. `context`: [{line_no, text}], the lines around the root
        and those that only follow from it.
        """
        if context.log is None:
            return dict.fromkeys(self.fields, Fact.unavailable(context.log_hint or NO_LOG))
        until = self._clock.monotonic() + self.deadline * _SHARE_OF_TIME
        triage = self._new()
        read = 0
        whole = True
        for chunk in both_ends(context.log):
            if self._clock.monotonic() >= until:
                whole = False
                break
            triage.feed(chunk)
            read += len(chunk)
        triage.finish()
        diagnosis = triage.diagnose(exit_evidence(context))
        return {
            "diagnosis": Fact.measured(context.redactor.json(diagnosis.as_json()), self._how(context.log, read, whole)),
            "context": attempt(lambda: _lines_around(context, diagnosis)),
        }

    def _how(self, log: LogSource, read: int, whole: bool) -> str:
        if not whole:
            return f"only the first {read} bytes were read: the time for reading was over"
        if log.size is not None and log.size > _HEAD + _TAIL:
            return f"the first {_HEAD} and the last {_TAIL} bytes of {log.size} were read, lines between only counted"
        return ""


def _lines_around(context: Context, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    root = diagnosis.root_line_no
    if context.log is None or root is None:
        raise LookupError("no root line was found")
    wanted = set(range(root - _AROUND, root + _AROUND + 1))
    wanted |= {number for number in diagnosis.consequences[:_CONSEQUENCES] if abs(number - root) < _REACH}
    # Masked as one piece that begins well before: a key that spans lines is not told by its middle.
    first, last = min(wanted) - _KEY_LINES, max(wanted)
    numbers: list[int] = []

    def read() -> Iterator[str]:
        for number, part in numbered(both_ends(context.log), LONGEST_PART) if context.log is not None else ():
            if number > last:
                return
            if number >= first and number not in numbers[-1:]:  # of a long line its beginning will do
                numbers.append(number)
                yield part.decode("utf-8", "replace")

    shown: dict[int, str] = {}
    for at, text in enumerate(context.redactor.lines(read())):
        if numbers[at] in wanted:
            shown.setdefault(numbers[at], text.rstrip("\r\n")[:_LONGEST_SHOWN])
    return [{"line_no": number, "text": text} for number, text in sorted(shown.items())]


def exit_evidence(context: Context) -> ExitEvidence | None:
    """How a container has ended, which its log does not tell; None where it runs or none was named."""
    state = context.container["State"] if context.container is not None else {}
    if not state or state.get("Running"):
        return None
    return ExitEvidence(code=state.get("ExitCode"), oom_killed=state.get("OOMKilled"))


def both_ends(log: LogSource) -> Iterator[bytes]:
    """The whole log, or of a very large file its ends, with line feeds in between that keep the numbers of lines."""
    if log.size is None or log.size <= _HEAD + _TAIL:
        yield from log.chunks()
        return
    at = 0
    tail = log.size - _TAIL
    for chunk in log.chunks():
        before, at = at, at + len(chunk)
        if before < _HEAD or before >= tail:
            yield chunk
        elif count := chunk.count(b"\n"):
            yield b"\n" * count
