"""The triage itself: eats a log in any chunks, in constant memory, and can answer at any time.

Most of a log means nothing. Once the log is known to be vLLM's, one pass over a block finds the lines that hold a text
some row looks for; only these are read, and all lines for a while behind an exception. Of these, most repeat a few
shapes: a line's shape is the line without digits and hexadecimal letters, and a shape that once changed nothing is
skipped at the cost of one look-up.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from repro.triage.collector import Collector
from repro.triage.diagnosis import Diagnosis, ExitEvidence
from repro.triage.lines import LineSplitter
from repro.triage.literals import Literals
from repro.triage.progress import Reached
from repro.triage.table_files import shipped_table
from repro.triage.tables import PatternTable

_NOISE = (b"NCCL INFO", b"NCCL TRACE")  # NCCL_DEBUG at its loudest: nothing of it is a marker or a cause
_VARYING = b"0123456789abcdefABCDEF"
_MAX_SHAPES = 4096
_LONGEST_SHAPE = 2000  # bytes; longer lines are rare and would make the memory of shapes large
_READ_SIZE = 1 << 18  # bytes; what fits a processor cache is searched faster
Shape = tuple[bytes, tuple[int, ...]]  # what stays of a line, and which texts of the tables it holds


class Triage:
    """Incremental: offline and live are one code. Feed bytes or text in any chunks, then ask."""

    def __init__(self, patterns: PatternTable | None = None) -> None:
        self._lines = LineSplitter()
        self._collector = Collector(patterns or shipped_table())
        self._literals = _shipped_literals() if patterns is None else Literals(patterns)
        self._shapes: dict[Shape, bool] = {}
        self._told: dict[bytes, bool] = {}
        self._epoch = 0

    def feed(self, text: bytes | str) -> None:
        """Takes the next piece of the log; an unfinished last line waits for its rest."""
        chunk = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        first, lines = self._lines.block(chunk)
        done = self._read_on(first, lines, 0)
        if done < len(lines):
            self._search(first + done, lines[done:] if done else lines)

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

    def _search(self, first: int, lines: list[bytes]) -> None:
        """Reads those lines of a block that may matter. `done`: all before it are; `told`: the last that may stand
        for the end of a silent log, among lines of known shape.
        """
        done, told = 0, -1
        for index, texts, first_end, plain in self._literals.find(lines):
            raw = lines[index]
            if index < done or _NOISE[0] in raw or _NOISE[1] in raw:
                continue
            words = raw[:first_end] if plain else raw
            shape = (words.translate(None, _VARYING), texts) if len(words) <= _LONGEST_SHAPE else None
            tells = self._shapes.get(shape) if shape else None
            if tells is None:
                self._last_words(first, lines, done, told, index)
                # inside JSON a text may be written with escapes, so that others of them stand there too
                rows = None if raw.startswith(b"{") else self._literals.narrow(texts)
                self._read(first + index, raw, shape, rows)
                done = self._read_on(first, lines, index + 1)
            elif tells:
                told = index
        self._last_words(first, lines, done, told, len(lines))

    def _last_words(self, first: int, lines: list[bytes], done: int, told: int, end: int) -> None:
        """Tells the collector the last line of vLLM itself among those passed over."""
        for index in range(end - 1, max(done, told + 1) - 1, -1):
            raw = lines[index]
            if raw and not _is_noise(raw) and self._tells(raw):
                self._collector.seen(first + index, raw)
                return
        if told >= done:
            self._collector.seen(first + told, lines[told])

    def _tells(self, raw: bytes) -> bool:
        shape = raw[:_LONGEST_SHAPE].translate(None, _VARYING)
        tells = self._told.get(shape)
        if tells is None:
            if len(self._told) >= _MAX_SHAPES:
                self._told.clear()
            tells = self._told[shape] = self._collector.tells(raw)
        return tells

    def _read_on(self, first: int, lines: list[bytes], start: int) -> int:
        """Reads line by line for as long as any line may matter; the index of the first one not read."""
        collector, index = self._collector, start
        while index < len(lines) and (collector.attentive(first + index) or not self._literals.usable):
            self._line(first + index, lines[index])
            index += 1
        return index

    def _line(self, number: int, raw: bytes) -> None:
        if _is_noise(raw):
            return
        if self._collector.in_traceback or len(raw) > _LONGEST_SHAPE:
            self._read(number, raw, None)
            return
        shape = (raw.translate(None, _VARYING), ())
        tells = self._shapes.get(shape)
        if tells is None:
            self._read(number, raw, shape)
        elif tells:
            self._collector.seen(number, raw)

    def _read(self, number: int, raw: bytes, shape: Shape | None, rows: PatternTable | None = None) -> None:
        if not raw.strip():
            return
        collector = self._collector
        before = collector.changes
        tells = collector.line(number, raw, rows)
        if collector.epoch != self._epoch:
            self._shapes.clear()
            self._epoch = collector.epoch
        if shape is not None and collector.changes == before:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = tells


def _is_noise(raw: bytes) -> bool:
    return _NOISE[0] in raw or _NOISE[1] in raw


@lru_cache(maxsize=1)
def _shipped_literals() -> Literals:
    return Literals(shipped_table())


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
