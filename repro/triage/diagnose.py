"""Chooses the root among the evidence: the earliest cause wins, echoes stand in only where no cause is told."""

from __future__ import annotations

from dataclasses import dataclass, replace

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.triage.classify import ENGINE_PROCESSES, Ruling, find_pattern, rule
from repro.triage.diagnosis import Diagnosis, ExitEvidence
from repro.triage.evidence import Evidence, Piece
from repro.triage.framing import frame
from repro.triage.progress import Progress
from repro.triage.tables import PROGRESS, Pattern, PatternTable
from repro.triage.template import template

_AFTERMATH = frozenset({Family.TIMEOUT, Family.ENGINE_DEAD, Family.SHM, Family.RENDEZVOUS_TIMEOUT})
DEAD_NOTE = (
    "The log does not say why the process went away; look at dmesg, the container's state (OOMKilled), "
    "and the logs of the other ranks or nodes."
)


_STUCK_NOTE = (
    "The workers did not react to the stop, after a silence longer than the whole start: they were waiting for a peer. "
    "This log alone cannot tell more; give the logs of all nodes."
)


@dataclass(frozen=True)
class _Choice:
    piece: Piece
    ruling: Ruling
    confidence: float
    certain: bool
    note: str = ""


def diagnose(
    table: PatternTable, progress: Progress, evidence: Evidence, exit_: ExitEvidence | None, is_vllm: bool
) -> Diagnosis:
    """The answer for one start from all that is known by now."""
    base = Diagnosis(
        Stage.NONE,
        reached=tuple(progress.reached),
        rank=progress.rank_of(None),
        formed_at=progress.formed_at,
        vllm_version=progress.version,
        expected_next=progress.expected_next,
        is_vllm_log=is_vllm,
    )
    if not is_vllm and exit_ is None:
        return replace(base, note="This is not the log of a vLLM server, nor a message of what starts one.")
    choice = _choose(table, progress, evidence)
    if choice is None or (choice.ruling.weight == 1 and exit_ is not None and exit_.running and not evidence.echoes):
        return _silent(base, progress, evidence, exit_)
    choice = _earliest_trace(_with_exit(choice, exit_), evidence)
    piece = choice.piece
    return replace(
        base,
        stage=choice.ruling.stage,
        family=choice.ruling.family,
        root_line_no=piece.number,
        root_line=piece.line,
        root_template=template(piece.line),
        consequences=tuple(
            n for n in sorted(set(evidence.numbers)) if n != piece.number and _follows(n, piece, evidence)
        ),
        process=piece.source.process,
        rank=progress.rank_of(piece.source),
        clock=piece.clock,
        confidence=choice.confidence,
        certain=choice.certain,
        note=choice.note,
    )


def _follows(number: int, root: Piece, evidence: Evidence) -> bool:
    """Later lines follow; so do headers printed above the cause, pydantic's among them."""
    headers = {piece.first_number for piece, _ in evidence.echoes} | {root.first_number}
    return number > root.number or number in headers


def _choose(table: PatternTable, progress: Progress, evidence: Evidence) -> _Choice | None:
    pieces = tuple(evidence.pieces)
    if _was_serving(progress, evidence):
        pieces = tuple(replace(piece, serving=True) for piece in pieces)
    over = any(not row.mild for _, row in evidence.echoes) or any(_uncaught(piece) for piece in pieces)
    dead = any(not row.of_request for _, row in evidence.echoes)
    ruled = [(piece, rule(table, piece, _links(piece, pieces))) for piece in pieces]
    ruled = [(p, r) for p, r in ruled if r.weight and _counts(p, r, dead)]
    strong = _first_in_time([(p, r) for p, r in ruled if r.weight == 3])
    weak = next(((p, r) for p, r in ruled if r.weight == 2), None)
    if (
        strong
        and weak
        and weak[0].number < strong[0].number
        and (strong[1].family in _AFTERMATH or not strong[1].known)
    ):
        strong = None  # a process went away, and what nobody knows came after it
    if strong:
        piece, ruling = _named(strong, ruled)
        certain = ruling.final or over
        return _Choice(
            piece, ruling, 0.95 if ruling.known and certain else 0.8 if ruling.known or certain else 0.6, certain
        )
    if weak:
        note = DEAD_NOTE if weak[1].family in {Family.ENGINE_DEAD, Family.OOM_HOST} else ""
        return _Choice(weak[0], weak[1], 0.6, over or weak[1].final, note)
    return _last_resort(table, progress, evidence, ruled)


def _was_serving(progress: Progress, evidence: Evidence) -> bool:
    """Told by the words of a dying engine, where the log begins in the middle or keeps its start to itself."""
    return evidence.serving_proof and not (progress.started and progress.talkative)


def _first_in_time(found: list[tuple[Piece, Ruling]]) -> tuple[Piece, Ruling] | None:
    """The first of the file, unless the log's own clock says that another one of this host was printed earlier."""
    if not found:
        return None
    best = found[0]
    for other in found[1:]:
        clock, earliest = other[0].source.clock, best[0].source.clock
        local = not (other[0].source.remote or best[0].source.remote)
        if clock and earliest and local and clock < earliest and not (clock < "02" and earliest > "11"):
            best = other
    return best


def _last_resort(
    table: PatternTable, progress: Progress, evidence: Evidence, ruled: list[tuple[Piece, Ruling]]
) -> _Choice | None:
    """Only echoes, or an error line that no row knows: the earliest stands for the cause."""
    echoes = [piece for piece, _ in evidence.echoes]
    unknown = next((item for item in ruled if item[1].weight == 1), None)
    if not echoes:
        return _Choice(*unknown, 0.4, False) if unknown and not unknown[0].serving else None
    first = min(echoes, key=lambda piece: piece.number)
    telling = next((row for piece in echoes if (row := find_pattern(table.causes, piece)) and row.kind != "weak"), None)
    if unknown and unknown[0].number < first.number:
        return _Choice(*unknown, 0.4, False)
    if evidence.executor_stop is not None and evidence.executor_stop.number < first.number:
        first = evidence.executor_stop  # workers are ended before anyone says why: one of them vanished
    serving = first.serving or _was_serving(progress, evidence) or progress.serving
    stage = Stage.SERVING if serving else first.work
    if stage is Stage.CONTAINER_INIT:
        stage = Stage.ENGINE_INIT
    if telling:
        return _Choice(first, Ruling(stage, telling.family, 2, True), 0.6, False)
    if all(row.of_request or row.id == "http-500" for _, row in evidence.echoes):
        return _Choice(first, Ruling(stage, Family.HTTP_ERROR, 1, False), 0.4, False)
    return _Choice(first, Ruling(stage, Family.ENGINE_DEAD, 1, False), 0.4, False, DEAD_NOTE)


def _counts(piece: Piece, ruling: Ruling, dead: bool) -> bool:
    """While serving, an exception nobody knows counts only if something died of it or the engine printed it."""
    if not piece.serving or ruling.known or ruling.family is Family.TOOL_PARSER:
        return True
    return dead or (ruling.weight >= 2 and (piece.source.process or "").startswith(ENGINE_PROCESSES))


def _links(piece: Piece, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The exceptions that were raised from this one, in order."""
    links: list[Piece] = []
    last = piece.raised
    if last is None:
        return ()
    for other in pieces:
        if other.raised is not None and other.raised.chained is last:
            links.append(other)
            last = other.raised
    return tuple(links)


def _named(found: tuple[Piece, Ruling], ruled: list[tuple[Piece, Ruling]]) -> tuple[Piece, Ruling]:
    """A bare inner exception yields to the named one raised from it; an error line that says it all wins (R1, R3)."""
    piece, ruling = found
    raised = piece.raised
    if raised is None:
        return found
    if raised.bare:
        outer = next((p for p, _ in ruled if p.raised is not None and p.raised.chained is raised), None)
        return (outer, ruling) if outer is not None and outer.raised and not outer.raised.bare else found
    words = raised.text.strip()
    for other, _ in ruled:
        if (
            other.raised is None
            and other.number < piece.number
            and len(words) > 10
            and other.source.message.strip() == words
        ):
            return other, ruling
    return found


def _uncaught(piece: Piece) -> bool:
    """A traceback that begins at the program's entry ended the process."""
    entries = ("sys.exit(main", "<module>", "multiprocessing/spawn.py", "run_engine_core", "worker_main")
    return any(word in frame for frame in piece.frames[:3] for word in entries)


def _earliest_trace(choice: _Choice, evidence: Evidence) -> _Choice:
    """A quiet line that already told the cause is the root line (RULES R6), and its family the more exact one."""
    for hint in evidence.hints:
        row = hint.pattern
        if row is None or hint.number >= choice.piece.number or choice.ruling.family not in row.hints:
            continue
        if row.stage in {choice.ruling.stage.value, PROGRESS} or choice.ruling.stage is Stage.SERVING:
            return replace(choice, piece=hint, ruling=replace(choice.ruling, family=_more_exact(row, choice.ruling)))
    return choice


def _more_exact(row: Pattern, ruling: Ruling) -> Family:
    return ruling.family if row.family in {Family.CUDA_INIT, Family.IMAGE_MISSING} else row.family


def _with_exit(choice: _Choice, exit_: ExitEvidence | None) -> _Choice:
    if exit_ is None or not exit_.oom_killed or choice.ruling.weight == 3:
        return choice
    ruling = replace(choice.ruling, family=Family.OOM_HOST)
    return replace(
        choice, ruling=ruling, confidence=0.9, note="The kernel killed a process for lack of memory (cgroup)."
    )


def _silent(base: Diagnosis, progress: Progress, evidence: Evidence, exit_: ExitEvidence | None) -> Diagnosis:
    """No abnormal line at all: the end of the log, the exit and the moment tell."""
    number, line = progress.last_line or (None, None)
    if exit_ is not None and exit_.oom_killed:
        stage = Stage.SERVING if progress.serving else _killed_in(progress)
        family, sure, note = Family.OOM_HOST, 0.9, "The kernel killed a process for lack of memory (cgroup)."
    elif progress.serving:
        return _silent_while_serving(base, progress, evidence, exit_)
    elif exit_ is None or exit_.running or exit_.stopped_by_us:
        stage, family, sure = progress.waiting_in, Family.HANG, 0.5
        note = "The log ends without a word about a fault: the start was waiting, or was killed from outside."
        if not progress.talkative:
            sure, note = 0.2, f"{note} No INFO line is printed, so that progress cannot be seen (VLLM_LOGGING_LEVEL)."
    else:
        stage, family, sure, note = _killed_in(progress), Family.ENGINE_DEAD, 0.5, DEAD_NOTE
        if exit_.code in {126, 127} and not progress.reached:
            family = Family.ENTRYPOINT
    told = _told_quietly(progress, evidence) if family in {Family.HANG, Family.ENGINE_DEAD} else None
    if told is not None and told.pattern is not None:
        stage, family, number, line = Stage(told.pattern.stage), told.pattern.family, told.number, told.line
    return replace(
        base,
        stage=stage,
        family=family,
        process=frame(line).process if line else None,
        clock=frame(line).clock if line else None,
        root_line_no=number,
        root_line=line,
        root_template=template(line) if line else "",
        confidence=sure,
        note=note,
    )


def _told_quietly(progress: Progress, evidence: Evidence) -> Piece | None:
    """The first warning about the very work that a start without an error ended in (peers, the hub, the image)."""
    loaded = any(item.stage is Stage.WEIGHT_ACCESS for item in progress.reached)
    for hint in evidence.hints:
        row = hint.pattern
        if row is None or row.family is Family.CUDA_INIT:  # no NVIDIA library is normal on most machines
            continue
        if row.stage == progress.waiting_in.value or (row.family is Family.HUB_UNREACHABLE and not loaded):
            return hint
    return None


def _killed_in(progress: Progress) -> Stage:
    """RULES S11: before the banner container_init, then engine_init."""
    return Stage.ENGINE_INIT if progress.reached or progress.work is not Stage.CONTAINER_INIT else Stage.CONTAINER_INIT


def _silent_while_serving(
    base: Diagnosis, progress: Progress, evidence: Evidence, exit_: ExitEvidence | None
) -> Diagnosis:
    if exit_ is not None and exit_.stopped_by_us:
        return base
    stop = evidence.executor_stop
    if stop is not None and (evidence.executor_stuck or not progress.headless):
        stuck = evidence.silence is not None and evidence.silence > (evidence.start_took or 0.0)
        number, line = progress.last_line if stuck and progress.last_line else (stop.number, stop.line)
        note = _STUCK_NOTE if stuck else DEAD_NOTE
        family = Family.HANG if stuck else Family.ENGINE_DEAD
    elif evidence.stall is not None and not evidence.stopped:
        number, line = evidence.stall.number, evidence.stall.line
        family, note = Family.HANG, "The engine waits for its workers and no request was answered since."
    elif exit_ is not None and not exit_.running and stop is None and not evidence.stopped:
        number, line = progress.last_line or (0, "")
        family, note = Family.ENGINE_DEAD, f"The server ended by itself (exit code {exit_.code}). {DEAD_NOTE}"
    else:
        return base
    return replace(
        base,
        stage=Stage.SERVING,
        family=family,
        process=frame(line).process,
        clock=frame(line).clock,
        root_line_no=number or None,
        root_line=line or None,
        root_template=template(line),
        consequences=tuple(n for n in evidence.numbers if n > number),
        confidence=0.4,
        note=note,
    )
