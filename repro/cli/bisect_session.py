"""Begins, resumes and plans searches, and says what came of them."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from repro.bisect import Plan, SearchOptions
from repro.bisect import plan as plan_search
from repro.cli.bisect_text import plan_text, result_text
from repro.cli.engines import must_be_startable, placed_scene
from repro.cli.left_behind import working
from repro.cli.masks import redactor_for
from repro.cli.options import HERE, Source, Waits, Wanted, Where
from repro.cli.output import print_json, talk
from repro.cli.progress import watching
from repro.cli.wiring import (
    JOURNAL,
    begin_session,
    parse_signature,
    run_session,
    session_scene,
    shell_line,
)
from repro.domain.command.layout import gpu_count
from repro.domain.finding import ResultKind, SearchResult
from repro.domain.scene import Scene
from repro.errors import (
    EXIT_END_NOT_AS_CLAIMED,
    EXIT_FAILURE_SEEN,
    EXIT_GOOD,
    EXIT_INCONCLUSIVE,
    InvalidFile,
    UsageError,
)
from repro.machine.clock import SystemClock
from repro.session.journal import read
from repro.session.summary import numbered, summary
from repro.session.workspace import Workspace
from repro.trial.drive import Limits

EXIT_CODES = {
    ResultKind.FOUND: EXIT_GOOD,
    ResultKind.MINIMAL_FAILS: EXIT_FAILURE_SEEN,
    ResultKind.NOT_REPRODUCED: EXIT_END_NOT_AS_CLAIMED,
    ResultKind.END_NOT_AS_CLAIMED: EXIT_END_NOT_AS_CLAIMED,
    ResultKind.INCONCLUSIVE: EXIT_INCONCLUSIVE,
}
Budget = tuple[int | None, float | None]


def begin(
    scenario: Path | None,
    source: Source,
    wanted: Wanted,
    precision: float | None,
    target: str | None,
    budget: Budget,
    waits: Waits,
    as_json: bool,
    where: Where = HERE,
) -> int:
    """A new search."""
    claimed = frozenset({parse_signature(target)}) if target else frozenset()
    scene, notes = _searchable(scenario, source, wanted, precision, where)
    must_be_startable(where, scene, searched=True)
    with working("bisect", SystemClock()) as workspace:
        for note in notes:
            talk(f"note: {note}")
        folder = begin_session(workspace, scene, notes, claimed, where)
        talk(f"session {folder}")
        return _run(workspace, folder, scene, budget, waits, as_json)


def resume(session: str | None, budget: Budget, waits: Waits, as_json: bool) -> int:
    """Goes on with a session; one that is finished already gives its result again and starts nothing."""
    with working("bisect --resume", SystemClock()) as workspace:
        folder = workspace.existing("sessions", session)
        events, _ = read(folder / JOURNAL)
        if not events:
            raise InvalidFile(f"{folder / JOURNAL}: the session was ended before it began", "begin a new search")
        scene = session_scene(folder, events[0])
        done = sum(e["event"] == "finished" for e in events)
        talk(f"session {folder}: {done} trials are done already")
        return _run(workspace, folder, scene, budget, waits, as_json)


def _run(workspace: Workspace, folder: Path, scene: Scene, budget: Budget, waits: Waits, as_json: bool) -> int:
    cost = plan_search(scene.variables, SearchOptions(scene.precision))
    launches, minutes = budget
    limits = Limits(launches, None if minutes is None else minutes * 60)
    with watching(cost.typical_launches[1]) as observer:
        finished = run_session(workspace, folder, limits, waits, observer, scene)
    if as_json:
        print_json("bisect", numbered(summary(finished.events, str(folder))))
    else:
        print(result_text(finished, scene))
    return exit_code(finished.result)


def exit_code(result: SearchResult) -> int:
    """DESIGN's table: 0 only for a proven finding."""
    return EXIT_CODES[result.kind]


def plan(
    scenario: Path | None,
    source: Source,
    wanted: Wanted,
    precision: float | None,
    launch_minutes: float,
    as_json: bool,
) -> int:
    """What a search would run and can cost; nothing is started and nothing written."""
    scene, notes = _searchable(scenario, source, wanted, precision)
    cost = plan_search(scene.variables, SearchOptions(scene.precision))
    gpus = gpu_count(scene.production)
    redactor = redactor_for(scene.environment_from)
    ends = {
        "minimal": shell_line(scene.launch(scene.minimal_configuration).command, redactor),
        "production": shell_line(scene.launch(scene.production_configuration).command, redactor),
    }
    if as_json:
        print_json("plan", {**_plan_json(cost, gpus, launch_minutes), **ends, "notes": list(notes)})
    else:
        print(plan_text(cost, scene, ends, notes, launch_minutes, gpus), file=sys.stdout)
    return EXIT_GOOD


def _plan_json(cost: Plan, gpus: int, launch_minutes: float) -> dict[str, object]:
    minutes = math.ceil(cost.most_launches * launch_minutes)
    return {
        "most_launches": cost.most_launches,
        "most_trials": cost.most_trials,
        "most_minutes": minutes,
        "most_gpu_hours": round(minutes * gpus / 60, 1),
        "single": [{"variable": name, "launches": launches} for name, launches in cost.single],
    }


def _searchable(
    scenario: Path | None, source: Source, wanted: Wanted, precision: float | None, where: Where = HERE
) -> tuple[Scene, tuple[str, ...]]:
    derived = placed_scene(where, scenario, source, wanted, precision)
    if not derived.scene.variables:
        raise UsageError(
            "production and the minimal command are the same, so there is nothing to search",
            "`repro run -- …` tells at which stage it fails; --input-tokens, --concurrency and such add variables",
        )
    return derived.scene, derived.notes
