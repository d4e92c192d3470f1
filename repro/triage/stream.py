"""The triage itself: eats a log in any chunks, in constant memory, and can answer at any time.

Most of a log repeats a few shapes that mean nothing. A line's shape is the line without digits and hexadecimal letters;
a shape that once changed nothing is skipped at the cost of one look-up.
"""

from __future__ import annotations

from pathlib import Path

from repro.triage.collector import Collector
from repro.triage.diagnosis import Diagnosis, ExitEvidence
from repro.triage.lines import LineSplitter
from repro.triage.progress import Reached
from repro.triage.tables import PatternTable, shipped_table

_NOISE = (b"NCCL INFO", b"NCCL TRACE")  # NCCL_DEBUG at its loudest: nothing of it is a marker or a cause
_VARYING = b"0123456789abcdefABCDEF"
_MAX_SHAPES = 4096
_LONGEST_SHAPE = 2000  # bytes; longer lines are rare and would make the memory of shapes large
_READ_SIZE = 1 << 20


class Triage:
    """Incremental: offline and live are one code. Feed bytes or text in any chunks, then ask."""

    def __init__(self, patterns: PatternTable | None = None) -> None:
        self._lines = LineSplitter()
        self._collector = Collector(patterns or shipped_table())
        self._shapes: dict[bytes, bool] = {}
        self._epoch = 0

    def feed(self, text: bytes | str) -> None:
        """Takes the next piece of the log; an unfinished last line waits for its rest."""
        chunk = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        for number, raw in self._lines.feed(chunk):
            self._line(number, raw)

    def finish(self) -> None:
        """The log is over: a last line without line feed counts too."""
        for number, raw in self._lines.finish():
            self._line(number, raw)

    @property
    def reached(self) -> tuple[Reached, ...]:
        """Stages proven done so far, in time order."""
        return tuple(self._collector.progress.reached)

    def diagnose(self, exit: ExitEvidence | None = None) -> Diagnosis:
        """The answer by now; ask again after more was fed."""
        return self._collector.diagnose(exit)

    def _line(self, number: int, raw: bytes) -> None:
        for noise in _NOISE:
            if noise in raw:
                return
        collector = self._collector
        if collector.in_traceback or len(raw) > _LONGEST_SHAPE:
            if raw.strip():
                collector.line(number, raw)
            return
        if collector.epoch != self._epoch:
            self._shapes.clear()
            self._epoch = collector.epoch
        shape = raw.translate(None, _VARYING)
        tells = self._shapes.get(shape)
        if tells is None:
            self._new_shape(shape, number, raw)
        elif tells:
            collector.seen(number, raw)

    def _new_shape(self, shape: bytes, number: int, raw: bytes) -> None:
        if not raw.strip():
            return
        before = self._collector.changes
        tells = self._collector.line(number, raw)
        if self._collector.changes == before:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = tells


def triage_text(text: bytes | str, exit: ExitEvidence | None = None) -> Diagnosis:
    """Judges a whole log held in memory."""
    triage = Triage()
    triage.feed(text)
    triage.finish()
    return triage.diagnose(exit)


def triage_file(path: Path, exit: ExitEvidence | None = None) -> Diagnosis:
    """Judges a log file of any size; raises OSError where it cannot be read."""
    triage = Triage()
    with path.open("rb") as stream:
        while chunk := stream.read(_READ_SIZE):
            triage.feed(chunk)
    triage.finish()
    return triage.diagnose(exit)
