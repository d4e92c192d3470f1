"""What was seen that may matter for the cause, kept within bounds: a log may be endless, its evidence is not.

The first pieces are kept, because the earliest cause is the root; later ones are only counted as consequences.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from repro.domain.stage import Stage
from repro.triage.framing import Frame, frame
from repro.triage.tables import Consequence, Pattern
from repro.triage.traceback_assembly import Raised

MAX_PIECES = 200
MAX_ECHOES = 200
MAX_NUMBERS = 2000


@dataclass
class Piece:
    """One abnormal line: an exception that ended a traceback, or a plain one. `work` and `serving` are of that time.

    `request_level`: seen by one request; `aside`: raised in a thread whose end the process survives.
    """

    first_number: int
    first_line: str
    source: Frame
    work: Stage
    serving: bool
    raised: Raised | None = None
    pattern: Pattern | None = None
    request_level: bool = False
    aside: bool = False
    before: bytes = b""  # the last line of vLLM by then: its clock stands in where this one has none

    @property
    def number(self) -> int:
        """pydantic moves the root line to the line that says the fault (RULES R2)."""
        return self.raised.number if self.raised else self.first_number

    @property
    def line(self) -> str:
        return self.raised.line if self.raised else self.first_line

    @property
    def text(self) -> str:
        """All words of the fault: message, its further lines, and for a bare exception the code that raised it."""
        if self.raised is None:
            return self.source.message
        words = [self.raised.message, *self.raised.detail]
        if self.raised.bare and self.raised.frames:
            words.append(self.raised.frames[-1])
        return "\n".join(words)

    @property
    def clock(self) -> str | None:
        return self.source.clock or frame(self.before.decode("utf-8", "replace")).clock

    @property
    def frames(self) -> tuple[str, ...]:
        return self.raised.frames if self.raised else ()


@dataclass
class Evidence:
    """Everything kept about one start. `pieces` hold causes, `echoes` consequences, `hints` early quiet traces."""

    pieces: list[Piece] = field(default_factory=list)
    echoes: list[tuple[Piece, Consequence]] = field(default_factory=list)
    hints: list[Piece] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    serving_proof: bool = False
    stopped: bool = False
    stall: Piece | None = None
    executor_stop: Piece | None = None
    executor_stuck: bool = False
    silence: float | None = None  # seconds without a line before the executor's stop, by the log's own clock
    start_took: float | None = None  # seconds from the log's first line to the one before that silence

    def add(self, piece: Piece) -> None:
        self.note(piece.first_number)
        if len(self.pieces) < MAX_PIECES:
            self.pieces.append(piece)

    def add_hint(self, piece: Piece) -> None:
        if len(self.hints) < MAX_ECHOES:
            self.hints.append(piece)

    def add_echo(self, piece: Piece, row: Consequence) -> None:
        self.note(piece.first_number)
        self.serving_proof = self.serving_proof or row.proves_serving
        piece.request_level = row.of_request
        if len(self.echoes) < MAX_ECHOES:
            self.echoes.append((piece, row))

    def note(self, number: int) -> None:
        if len(self.numbers) < MAX_NUMBERS:
            self.numbers.append(number)

    def drop_requests(self) -> None:
        """A request that was refused (HTTP 4xx) takes back what it printed (RULES S10)."""
        self.pieces = [piece for piece in self.pieces if not piece.request_level]
        self.echoes = [(piece, row) for piece, row in self.echoes if not piece.request_level]

    def settle_requests(self) -> None:
        for piece in (*self.pieces, *(piece for piece, _ in self.echoes)):
            piece.request_level = False
