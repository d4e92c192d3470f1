"""The triage itself: eats a log in any chunks, in constant memory, and can answer at any time."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from repro.domain.stage import Stage
from repro.triage.classify import find_pattern
from repro.triage.diagnose import diagnose
from repro.triage.diagnosis import Diagnosis, ExitEvidence
from repro.triage.evidence import Evidence, Piece
from repro.triage.framing import Frame, frame, split_bar
from repro.triage.lines import LineSplitter
from repro.triage.progress import Progress, Reached
from repro.triage.tables import Marker, PatternTable, first, shipped_table
from repro.triage.traceback_assembly import Raised, TracebackAssembler

_NOISE = (b"NCCL INFO", b"NCCL TRACE")  # NCCL_DEBUG at its loudest: nothing of it is a marker or a cause
_ACCESS = re.compile(r'"[A-Z]+ \S+ HTTP/[\d.]+" (\d{3})')
_PYTHON_WARNING = re.compile(r"\.py:\d+: \w*Warning: ")
_VLLM_PROCESS = re.compile(r"^(?:EngineCore|APIServer|ApiServer|Worker|VllmWorker|RayWorkerWrapper|MainProcess)")
_REQUEST_PLACES = re.compile(r"entrypoints/|serving|api_router|protocol|renderer")
_READ_SIZE = 1 << 20


class Triage:
    """Incremental: offline and live are one code. Feed bytes or text in any chunks, then ask."""

    def __init__(self, patterns: PatternTable | None = None) -> None:
        self._table = patterns or shipped_table()
        self._lines = LineSplitter()
        self._assembler = TracebackAssembler()
        self._progress = Progress()
        self._evidence = Evidence()
        self._earlier: Diagnosis | None = None
        self._is_vllm = False
        self._stopped = False
        self._any_line = False

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
        return tuple(self._progress.reached)

    def diagnose(self, exit: ExitEvidence | None = None) -> Diagnosis:
        """The answer by now; ask again after more was fed."""
        now = diagnose(self._table, self._progress, self._evidence, exit, self._is_vllm)
        if self._earlier is None:
            return now
        if now.stage is Stage.NONE and self._progress.serving:
            return replace(now, note=f"An earlier start in this log failed at line {self._earlier.root_line_no}.")
        return self._earlier

    def _line(self, number: int, raw: bytes) -> None:
        if not raw.strip() or any(noise in raw for noise in _NOISE):
            return
        self._any_line = True
        line = raw.decode("utf-8", "replace")
        for part in split_bar(line):
            self._part(number, line, frame(part))

    def _part(self, number: int, line: str, source: Frame) -> None:
        message = source.message
        raised, within = self._assembler.feed(number, line, source)
        if source.native or (source.process and _VLLM_PROCESS.match(source.process)):
            self._is_vllm = True
        if raised is not None:
            self._raised(raised)
            return
        if within:
            return
        marker = first(self._table.markers, message)
        if marker is not None:
            self._marker(marker, number, line, source)
        if not self._stopped and (marker is None or not marker.event.startswith(("stop", "executor"))):
            self._note_last(number, line, source, marker)
        if self._progress.serving and (found := _ACCESS.search(message)):
            self._access(int(found[1]))
        if marker is None or marker.generic:
            self._plain(number, line, source)

    def _note_last(self, number: int, line: str, source: Frame, marker: Marker | None) -> None:
        """The last line of vLLM itself (or the last at all) stands for a cause that left no trace (RULES R6, R7)."""
        if self._evidence.executor_stop is not None:
            return
        if source.native or marker is not None or self._progress.last_line is None or not self._is_vllm:
            self._progress.last_line = (number, line)
        self._progress.last_clock = source.clock or self._progress.last_clock

    def _marker(self, marker: Marker, number: int, line: str, source: Frame) -> None:
        self._is_vllm = self._is_vllm or not marker.generic
        if marker.event == "banner" and self._is_restart(source):
            self._begin_again()
        was_serving = self._progress.serving
        self._progress.take(marker, number, line, source.message, source)
        if self._progress.serving and not was_serving:
            self._evidence.pieces.clear()  # whatever was printed before, it did not keep the server from getting ready
            self._evidence.echoes.clear()
            self._evidence.numbers.clear()
        if marker.event == "stop" and self._progress.serving and self.diagnose().stage is Stage.NONE:
            self._stopped = self._evidence.outside = True
        elif marker.event == "executor-stop" and self._evidence.executor_stop is None and not self._stopped:
            self._evidence.silence = _seconds_between(self._progress.last_clock, source.clock)
            self._evidence.executor_stop = self._piece(number, line, source)
        elif marker.event == "executor-stuck":
            self._evidence.executor_stuck = True

    def _is_restart(self, source: Frame) -> bool:
        ended = self._progress.ready or bool(self._evidence.pieces) or self._stopped
        return ended and self._progress.banner_by == (source.process or "")

    def _begin_again(self) -> None:
        """A container that restarts: the first failing start is kept, a new one is followed."""
        if self._earlier is None and (last := self.diagnose()).stage is not Stage.NONE:
            self._earlier = last
        self._progress, self._evidence, self._assembler = Progress(), Evidence(), TracebackAssembler()
        self._stopped = False

    def _raised(self, raised: Raised) -> None:
        if any("vllm" in place for place in raised.frames) or "vllm" in raised.message:
            self._is_vllm = True
        piece = self._piece(raised.number, raised.line, raised.source, raised)
        if self._stopped or (raised.source.is_low and raised.source.native):
            return
        words = raised.message
        if self._harmless(words, piece.serving):
            return
        if consequence := first(self._table.consequences, words):
            self._evidence.add_echo(piece, consequence)
            return
        places = "\n".join(raised.frames) + (raised.source.source or "")
        piece.request_level = piece.serving and bool(_REQUEST_PLACES.search(places))
        self._evidence.add(piece)

    def _plain(self, number: int, line: str, source: Frame) -> None:
        message = source.message
        indented = message[:1].isspace() and not message.lstrip().startswith("what():")
        if self._stopped or indented or _PYTHON_WARNING.search(message):
            return
        if self._harmless(message, self._progress.serving):
            return
        piece = self._piece(number, line, source)
        if consequence := first(self._table.consequences, message):
            self._evidence.add_echo(piece, consequence)
            return
        hint = find_pattern(self._table, piece, hints=True)
        if hint is not None:
            piece.pattern = hint
            self._evidence.add_hint(piece)
            self._is_vllm = self._is_vllm or hint.outside
            return
        row = find_pattern(self._table, piece)
        if row is not None and (row.quiet or not source.is_low):
            piece.pattern = row
            self._is_vllm = self._is_vllm or row.outside or "vllm" in message
            self._evidence.add(piece)
        elif source.is_error:
            self._evidence.add(piece)

    def _harmless(self, words: str, serving: bool) -> bool:
        row = first((row for row in self._table.harmless if serving or not row.when_serving), words)
        self._is_vllm = self._is_vllm or (row is not None and row.sign)
        return row is not None

    def _access(self, status: int) -> None:
        if 400 <= status < 500:
            self._evidence.drop_requests()
        elif status >= 500:
            self._evidence.settle_requests()

    def _piece(self, number: int, line: str, source: Frame, raised: Raised | None = None) -> Piece:
        return Piece(number, line, source, self._progress.work, self._progress.serving, raised)


def _seconds_between(earlier: str | None, later: str | None) -> float | None:
    """Both `MM-DD HH:MM:SS` of one log; None where one is missing. A turn of the year gives a negative number."""
    if earlier is None or later is None:
        return None
    form = "%Y-%m-%d %H:%M:%S"  # 2000 was a leap year, so that 02-29 can be read
    start, end = (datetime.strptime(f"2000-{clock}", form) for clock in (earlier, later))
    return (end - start).total_seconds()


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
