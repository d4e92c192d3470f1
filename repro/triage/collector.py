"""Reads one line after the other into progress and evidence, and says whether a line changed anything.

A log is mostly lines that change nothing, again and again in the same shape; whoever calls may skip a shape that once
changed nothing for as long as `epoch` stays the same and no traceback is open.
"""

from __future__ import annotations

import re
from dataclasses import replace

from repro.domain.stage import Stage
from repro.triage.classify import find_pattern
from repro.triage.diagnose import diagnose
from repro.triage.diagnosis import Diagnosis, ExitEvidence
from repro.triage.evidence import Evidence, Piece
from repro.triage.framing import Frame, frame, seconds_between, split_bar
from repro.triage.progress import Progress
from repro.triage.tables import Marker, Pattern, PatternTable, first
from repro.triage.traceback_assembly import Raised, TracebackAssembler

_ACCESS = re.compile(r'"[A-Z]+ \S+ HTTP/[\d.]+" (\d{3})')
_PYTHON_WARNING = re.compile(r"\.py:\d+: \w*Warning: ")
_VLLM_PROCESS = re.compile(
    r"^(?:EngineCore|APIServer|ApiServer|Worker|VllmWorker|RayWorkerWrapper|MainProcess|RustFrontend)"
)
_ENDINGS = ("stop", "executor")
_EVENTS = (*_ENDINGS, "stall")
_IGNORED = "Exception ignored in"  # Python's header above what a finaliser raised; nothing ends of it
_THREAD = "Exception in thread "  # a thread ends, the process goes on
_HEARTBEAT = re.compile(r"Waiting for (?:\d+ |output from)")  # printed for as long as nothing happens
_REQUEST_PLACES = re.compile(r"entrypoints/|serving|api_router|protocol|renderer")


class Collector:
    """State of one log. `epoch` grows when the meaning of later lines may have changed, `changes` with every effect."""

    def __init__(self, table: PatternTable) -> None:
        self._table = table
        self._rows_now = table  # those that the line at hand can fit
        self._assembler = TracebackAssembler()
        self.progress = Progress()
        self._evidence = Evidence()
        self._earlier: Diagnosis | None = None
        self._is_vllm = False
        self._stopped = False
        self._ignored: set[tuple[str, str, str]] = set()
        self._in_thread: set[tuple[str, str, str]] = set()
        self._last: tuple[int, bytes] | None = None
        self.epoch = 0
        self.changes = 0

    @property
    def in_traceback(self) -> bool:
        return self._assembler.open

    def attentive(self, number: int) -> bool:
        """True while every line may matter: the log is not known yet, or an exception was told a moment ago."""
        return not (self._is_vllm and self.progress.talkative) or self._assembler.busy(number)

    def tells(self, raw: bytes) -> bool:
        """What `line` would answer for a line that holds no text of any row."""
        parts = split_bar(raw.decode("utf-8", "replace"))
        return any(found.native and not _HEARTBEAT.match(found.message) for found in map(frame, parts))

    def line(self, number: int, raw: bytes, rows: PatternTable | None = None) -> bool:
        """Takes one line; True where it may stand for the end of a silent log. `rows`: those that it can fit."""
        self._rows_now = rows or self._table
        line = raw.decode("utf-8", "replace")
        tells = False
        for part in split_bar(line):
            tells = self._part(number, line, frame(part)) or tells
        if tells:
            self.seen(number, raw)
        return tells

    def seen(self, number: int, raw: bytes) -> None:
        """The last line of vLLM itself stands for a cause that left no trace (RULES R6, R7), a stop's lines do not."""
        if not self._stopped and self._evidence.executor_stop is None:
            self._last = (number, raw)

    def diagnose(self, exit_: ExitEvidence | None) -> Diagnosis:
        if self._last is not None:
            self.progress.last_line = (self._last[0], self._last[1].decode("utf-8", "replace"))
        now = diagnose(self._table, self.progress, self._evidence, exit_, self._is_vllm)
        if self._earlier is None:
            return now
        if now.stage is Stage.NONE and self.progress.serving:
            return replace(now, note=f"An earlier start in this log failed at line {self._earlier.root_line_no}.")
        return self._earlier

    def _part(self, number: int, line: str, source: Frame) -> bool:
        message = source.message
        if source.clock is not None:
            self.progress.begun_at = self.progress.begun_at or source.clock
        raised, within = self._assembler.feed(number, line, source)
        if source.native or (source.process and _VLLM_PROCESS.match(source.process)):
            self._is_vllm = True
            self.progress.talkative = self.progress.talkative or source.level in {"INFO", "DEBUG"}
        if raised is not None or within:
            self.changes += 1
            if raised is not None:
                self._raised(raised)
            return False
        marker = first(self._rows_now.markers, message)
        if marker is not None:
            self._marker(marker, number, line, source)
        if self.progress.serving and (found := _ACCESS.search(message)):
            self._access(int(found[1]))
        if marker is None or marker.generic:
            self._plain(number, line, source)
        stops = marker is not None and marker.event.startswith(_EVENTS)
        stops = stops or _HEARTBEAT.match(message) is not None
        return not stops and (source.native or marker is not None or self._last is None or not self._is_vllm)

    def _marker(self, marker: Marker, number: int, line: str, source: Frame) -> None:
        self._is_vllm = self._is_vllm or not marker.generic
        if marker.event == "banner" and self._is_restart(source):
            self._begin_again()
        before, was_serving = self.progress.state, self.progress.serving
        self.progress.take(marker, number, line, source.message, source)
        if self.progress.state != before or marker.event.startswith(_EVENTS):
            self.changes += 1
            self.epoch += 1
        if marker.event.startswith(_ENDINGS) and not marker.generic and not self._stopped:
            self._evidence.note(number)
        if self.progress.serving and not was_serving:
            self._evidence.pieces.clear()  # whatever was printed before, it did not keep the server from getting ready
            self._evidence.echoes.clear()
            self._evidence.numbers.clear()
        if marker.event == "stop" and self.progress.serving and self.diagnose(None).stage is Stage.NONE:
            self._stopped = self._evidence.stopped = True
        elif marker.event == "stall":
            self._evidence.stall = self._evidence.stall or self._piece(number, line, source)
        elif marker.event == "serving":
            self._evidence.stall = None
        elif marker.event == "executor-stop" and self._evidence.executor_stop is None and not self._stopped:
            last_clock = frame(self._last[1].decode("utf-8", "replace")).clock if self._last else None
            self._evidence.silence = seconds_between(last_clock, source.clock)
            self._evidence.start_took = seconds_between(self.progress.begun_at, last_clock)
            self._evidence.executor_stop = self._piece(number, line, source)
        elif marker.event == "executor-stuck":
            self._evidence.executor_stuck = True

    def _is_restart(self, source: Frame) -> bool:
        ended = self.progress.ready or bool(self._evidence.pieces) or self._stopped
        return ended and self.progress.banner_by == (source.process or "")

    def _begin_again(self) -> None:
        """A container that restarts: the first failing start is kept, a new one is followed."""
        if self._earlier is None and (last := self.diagnose(None)).stage is not Stage.NONE:
            self._earlier = last
        self.progress, self._evidence, self._assembler = Progress(), Evidence(), TracebackAssembler()
        self._stopped, self._last = False, None

    def _raised(self, raised: Raised) -> None:
        if any("vllm" in place for place in raised.frames) or "vllm" in raised.message:
            self._is_vllm = True
        piece = self._piece(raised.number, raised.line, raised.source, raised)
        if self._stopped or (raised.source.is_low and raised.source.native):
            return
        words = raised.message
        if raised.source.stream in self._ignored:
            self._ignored.discard(raised.source.stream)
            return
        if self._harmless(words):
            return
        if not self._is_vllm:
            row = find_pattern(self._rows_now.plain, piece)  # `Error: …` of a shell or the kubelet reads like a class
            self._is_vllm = row is not None and row.outside
        if consequence := first(self._rows_now.consequences, words):
            self._evidence.add_echo(piece, consequence)
            return
        piece.aside = raised.source.stream in self._in_thread
        self._in_thread.discard(raised.source.stream)
        places = "\n".join(raised.frames) + (raised.source.source or "")
        piece.request_level = piece.serving and bool(_REQUEST_PLACES.search(places))
        self._evidence.add(piece)

    def _plain(self, number: int, line: str, source: Frame) -> None:
        message = source.message
        indented = message[:1].isspace() and not message.lstrip().startswith("what():")
        if message.startswith((_IGNORED, _THREAD)):
            (self._ignored if message.startswith(_IGNORED) else self._in_thread).add(source.stream)
            self.changes += 1
            return
        if self._stopped or indented or _PYTHON_WARNING.search(message):
            return
        piece = self._piece(number, line, source)
        consequence = first(self._rows_now.consequences, message)
        row = None if consequence else find_pattern(self._rows(source), piece)
        if (consequence or row or source.is_error or not self._is_vllm) and self._harmless(message):
            return
        if consequence is not None:
            self._evidence.add_echo(piece, consequence)
        elif row is not None:
            piece.pattern = row
            self._is_vllm = self._is_vllm or row.outside or "vllm" in message
            (self._evidence.add_hint if row.kind == "hint" else self._evidence.add)(piece)
        elif source.is_error and message.strip() and not self._assembler.in_text:
            self._evidence.add(piece)
        else:
            return
        self.changes += 1

    def _rows(self, source: Frame) -> tuple[Pattern, ...]:
        """Hints before causes; a line at a low level counts only for the rows that are quiet."""
        return self._rows_now.quiet if source.is_low else self._rows_now.plain

    def _harmless(self, words: str) -> bool:
        serving = self.progress.serving
        row = first((row for row in self._rows_now.harmless if serving or not row.when_serving), words)
        self._is_vllm = self._is_vllm or (row is not None and row.sign)
        return row is not None

    def _access(self, status: int) -> None:
        if status >= 400:
            self.changes += 1
        if 400 <= status < 500:
            self._evidence.drop_requests()
        elif status >= 500:
            self._evidence.settle_requests()

    def _piece(self, number: int, line: str, source: Frame, raised: Raised | None = None) -> Piece:
        moment = self.progress
        before = self._last[1] if self._last else b""
        return Piece(number, line, source, moment.work, moment.serving, raised, before=before)
