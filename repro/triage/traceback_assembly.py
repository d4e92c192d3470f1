"""Puts interleaved tracebacks together again, one per process and logging place, and finds the line that ends each.

Nothing of a traceback is kept but the innermost frames and the code they show: enough to say which part of vLLM raised.
"""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from repro.triage.framing import Frame

_HEADERS = ("Traceback (most recent call last):", "Traceback (most recent call last)")
_MAX_STREAMS = 256
_MAX_FRAMES = 60
_MAX_DETAIL = 12
_TEXT_WITHIN = 60  # lines: the text of an exception goes on in the next ones, between those of other processes
_MAX_LINES = 5000  # the longest seen, torch's compiler with chained causes, has under 1000
_CHAINS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
_FRAME = re.compile(r'\s*File ["\u201c](?P<path>[^"\u201d]*)["\u201d], line \d+(?:, in (?P<name>.*))?$')
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?P<cause>\(\w+\))?(?::(?:\s+(?P<text>.*))?)?$", re.DOTALL)
_NAME = re.compile(
    r"(?:Error|Exception|Interrupt|SystemExit|Timeout|Empty|Full|Again|Abort|Failure|Failed|Refused|Dead|Died"
    r"|\.error|gaierror|herror|NotFound|ExceptionGroup|Unavailable|Unsupported)$"
)
_GROUP_BAR = re.compile(r"^\s*(?:\+[-+ ]*|\| ?)")
_PYDANTIC = re.compile(r"\d+ validation errors? for ")


@dataclass
class Raised:
    """An exception line and what led to it. `number` is its line; `detail` holds the lines of its text that follow."""

    number: int
    line: str
    type: str
    text: str
    source: Frame
    frames: tuple[str, ...] = ()
    started: int | None = None
    chained: Raised | None = None
    detail: list[str] = field(default_factory=list)

    @property
    def bare(self) -> bool:
        return not self.text.strip()

    @property
    def message(self) -> str:
        return f"{self.type}: {self.text}" if self.text else self.type


@dataclass
class _Stream:
    started: int | None = None
    frames: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_FRAMES))
    last: Raised | None = None
    chain_next: bool = False
    collecting: bool = False
    code_next: bool = False
    pydantic: bool = False


def exception_of(message: str, in_traceback: bool) -> tuple[str, str] | None:
    """(type, text) where `message` reads like the last line of a traceback."""
    if not message or message[0].isspace():
        return None
    found = _EXCEPTION.match(message)
    if not found or (":" not in message[: found.end("type") + 1] and not in_traceback):
        return None
    name = found["type"]
    if found["cause"] and not name.endswith("RayTaskError"):
        return None
    dotted_class = "." in name and name.rpartition(".")[2][:1].isupper()
    if name.endswith("Warning") or not (_NAME.search(name) or (in_traceback and dotted_class)):
        return None
    return name, found["text"] or ""


class TracebackAssembler:
    """Feed it every line of interest; it answers with the exception that the line ends, if any."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[str, str, str], _Stream] = OrderedDict()
        self._open: set[tuple[str, str, str]] = set()
        self.in_text = False  # the last line fed goes on with the text of an exception, indented or not
        self._opened_at = 0
        self._ended_at = -_TEXT_WITHIN

    @property
    def open(self) -> bool:
        """True while some line to come may belong to a traceback."""
        return bool(self._open)

    def busy(self, number: int) -> bool:
        """True while line `number` may belong to a traceback or be the text of an exception."""
        return bool(self._open) or number - self._ended_at < _TEXT_WITHIN

    def feed(self, number: int, line: str, source: Frame) -> tuple[Raised | None, bool]:
        """The exception that this line ends, and whether the line is part of a traceback (then it is no message)."""
        message = source.message.rstrip()
        self.in_text = False
        stream = self._streams.get(source.stream)
        if message.endswith(_HEADERS):
            self._begin(stream or self._new(source.stream), source, number)
            return None, True
        if self._open and number - self._opened_at > _MAX_LINES:
            self._give_up()
        if (stream is None or stream.started is None) and _FRAME.match(message):  # a log that begins in the middle
            stream = stream or self._new(source.stream)
            self._begin(stream, source, number)
        if stream is None:
            return self._alone(number, line, source, message)
        self._streams.move_to_end(source.stream)
        if message.startswith(_CHAINS):
            stream.chain_next, stream.collecting = True, False
            return None, True
        if stream.started is None:
            return self._after(number, line, source, stream, message)
        return self._inside(number, line, source, stream, message)

    def _inside(
        self, number: int, line: str, source: Frame, stream: _Stream, message: str
    ) -> tuple[Raised | None, bool]:
        bare = _GROUP_BAR.sub("", message) if message.lstrip().startswith(("|", "+")) else message
        if not bare.strip():
            return None, True
        if found := _FRAME.match(bare):  # some copies of a log have lost their indentation
            path = found["path"].replace("\\", "/")
            stream.frames.append(f"{path}:{found['name'] or ''}")
            stream.code_next = True
            return None, True
        is_code, stream.code_next = stream.code_next, False
        if bare[0].isspace():
            if bare.strip(" ^~") and stream.frames:
                stream.frames[-1] += " > " + bare.strip()[:200]
            return None, True
        parts = exception_of(bare, in_traceback=True)
        if parts is None:
            return None, source.native or is_code
        if parts[0].endswith("RayTaskError"):  # Ray's header above the traceback of the other process
            return None, True
        raised = Raised(number, line, parts[0], parts[1], source, tuple(stream.frames), stream.started)
        return self._end(stream, raised), True

    def _begin(self, stream: _Stream, source: Frame, number: int) -> None:
        stream.started, stream.collecting = number, False
        stream.frames.clear()
        self._open.add(source.stream)
        self._opened_at = number

    def _give_up(self) -> None:
        """A traceback without an end (a cut log, a killed process) must not hold up the rest."""
        for key in self._open:
            self._streams[key].started = None
        self._open.clear()

    def _end(self, stream: _Stream, raised: Raised) -> Raised:
        self._open.discard(raised.source.stream)
        self._ended_at = raised.number
        if stream.chain_next:
            raised.chained = stream.last
        stream.started, stream.chain_next, stream.collecting, stream.last = None, False, True, raised
        stream.frames.clear()
        stream.pydantic = _PYDANTIC.match(raised.text) is not None
        return raised

    def _after(
        self, number: int, line: str, source: Frame, stream: _Stream, message: str
    ) -> tuple[Raised | None, bool]:
        """Lines that follow an exception line may still be its text; pydantic says the fault itself only there."""
        if not stream.collecting or stream.last is None:
            return self._alone(number, line, source, message)
        raised = stream.last
        if len(raised.detail) >= _MAX_DETAIL or (source.native and source.stream != raised.source.stream):
            stream.collecting = False
            return None, False
        if exception_of(message, in_traceback=False) and not stream.pydantic:
            return self._alone(number, line, source, message)
        raised.detail.append(message[:2000])
        self.in_text = True
        if stream.pydantic and message.startswith("  ") and not message.startswith("   "):
            raised.number, raised.line, raised.text = number, line, message.strip()
            stream.pydantic = False
            return None, True
        return None, message[:1].isspace()

    def _alone(self, number: int, line: str, source: Frame, message: str) -> tuple[Raised | None, bool]:
        parts = exception_of(message, in_traceback=False)
        if parts is None:
            return None, False
        stream = self._streams.get(source.stream) or self._new(source.stream)
        return self._end(stream, Raised(number, line, parts[0], parts[1], source)), True

    def _new(self, key: tuple[str, str, str]) -> _Stream:
        stream = self._streams[key] = _Stream()
        if len(self._streams) > _MAX_STREAMS:
            self._open.discard(self._streams.popitem(last=False)[0])
        return stream
