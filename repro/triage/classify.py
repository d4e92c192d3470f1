"""From an abnormal line to stage and family: its words first, then the part of vLLM that raised it, then the moment."""

from __future__ import annotations

from dataclasses import dataclass, replace

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.triage.evidence import Piece
from repro.triage.tables import AREA, PROGRESS, Area, Pattern, PatternTable

ENGINE_PROCESSES = ("EngineCore", "Worker", "VllmWorker", "RayWorker", "rank")
_MAX_WORDS = 8000
_NOT_A_FAULT = frozenset({"KeyboardInterrupt", "SystemExit", "CancelledError", "GeneratorExit", "StopIteration"})
_BROKEN_PIPES = frozenset(
    {"BrokenPipeError", "ConnectionResetError", "EOFError", "ContextTerminated", "ActorDiedError", "WorkerCrashedError"}
)


@dataclass(frozen=True)
class Ruling:
    """What a piece says. `weight`: 3 a cause, 2 it yields to any cause, 1 an error line nobody knows, 0 nothing.

    `known`: a pattern row named it; `final`: the process that printed it ended with it.
    """

    stage: Stage
    family: Family
    weight: int
    known: bool
    final: bool = False


def find_pattern(rows: tuple[Pattern, ...], piece: Piece) -> Pattern | None:
    """The first of `rows` that fits the words, the frames and the logging place of a piece."""
    words = piece.text[:_MAX_WORDS]
    frames = "\n".join(piece.frames)
    for row in rows:
        if (
            row.fits(words)
            and (row.frames is None or row.frames.search(frames))
            and (row.source is None or row.source.search(piece.source.source or ""))
        ):
            return row
    return None


def find_area(table: PatternTable, piece: Piece) -> Area | None:
    """The part of vLLM (or of a library under it) that raised, the innermost frame that says something."""
    if piece.raised is None:
        return None
    name = piece.raised.type.rpartition(".")[2]
    for frame in reversed(piece.frames):
        for row in table.areas:
            if (not row.exceptions or name in row.exceptions) and row.fits(frame):
                return row
    return None


def rule(table: PatternTable, piece: Piece, links: tuple[Piece, ...] = ()) -> Ruling:
    """Stage and family of `piece`; `links` are the exceptions raised from it, which may say more."""
    ruling = _rule(table, piece, links)
    return replace(ruling, weight=min(ruling.weight, 2)) if piece.aside else ruling


def _rule(table: PatternTable, piece: Piece, links: tuple[Piece, ...]) -> Ruling:
    if piece.raised is not None and piece.raised.type.rpartition(".")[2] in _NOT_A_FAULT:
        return Ruling(_moment(piece), Family.OTHER, 0, False)
    for link in (piece, *links):
        pattern = link.pattern or find_pattern(table.causes, link)
        if pattern is not None:
            return _by_pattern(table, piece, link, pattern)
    for link in (piece, *links):
        if _while_importing(piece):
            return Ruling(Stage.CONTAINER_INIT, Family.IMPORT_ERROR, 3, False)
        area = find_area(table, link)
        if area is not None:
            stage = _moment(piece) if area.stage == PROGRESS else Stage(area.stage)
            return Ruling(Stage.SERVING if piece.serving else stage, area.family, 3, False)
    if piece.raised is None:
        return Ruling(_moment(piece), Family.OTHER, 1, False)
    if piece.raised.type.rpartition(".")[2] in _BROKEN_PIPES:
        return Ruling(_moment(piece), Family.ENGINE_DEAD, 2, False)
    return Ruling(_moment(piece), _by_type(piece.raised.type), 3, False)


def _by_pattern(table: PatternTable, piece: Piece, link: Piece, pattern: Pattern) -> Ruling:
    weight = 2 if pattern.kind == "weak" else 3
    family = pattern.family
    if piece.serving and not pattern.fixed:
        if weight == 2 and family is Family.OOM_HOST:
            family = Family.ENGINE_DEAD  # signal 9 while serving: nothing points at memory (RULES F2)
        return Ruling(Stage.SERVING, family, weight, True, pattern.final)
    if pattern.stage == AREA:
        area = find_area(table, link)
        stage = _moment(piece) if area is None or area.stage == PROGRESS else Stage(area.stage)
    elif pattern.stage == PROGRESS:
        stage = _moment(piece)
        if stage is Stage.WEIGHT_ACCESS and family is Family.IMPORT_ERROR:
            stage = Stage.ENGINE_INIT  # a library is missing, no fault of the model's files (RULES S1, S4)
    else:
        stage = Stage(pattern.stage)
    return Ruling(stage, family, weight, True, pattern.final)


def _moment(piece: Piece) -> Stage:
    """The work in progress. A log that begins in the middle shows by its process that the container was long up."""
    if piece.serving:
        return Stage.SERVING
    named = (*ENGINE_PROCESSES, "APIServer", "ApiServer", "MainProcess", "RustFrontend")
    if piece.work is Stage.CONTAINER_INIT and (piece.source.process or "").startswith(named):
        return Stage.ENGINE_INIT
    return piece.work


def _while_importing(piece: Piece) -> bool:
    """Raised before vLLM's first words while its modules were read: libraries do not fit together (RULES S2)."""
    ours = next((frame for frame in reversed(piece.frames) if "vllm/" in frame), "")
    return piece.work is Stage.CONTAINER_INIT and "<module>" in ours.partition(" > ")[0]


def _by_type(name: str) -> Family:
    match name.rpartition(".")[2]:
        case "PermissionError":
            return Family.PERMISSION
        case "TimeoutError":
            return Family.TIMEOUT
        case "ImportError" | "ModuleNotFoundError":
            return Family.IMPORT_ERROR
        case "ValidationError" | "ArgumentError" | "NotImplementedError":
            return Family.CONFIG_INVALID
        case _:
            return Family.OTHER
