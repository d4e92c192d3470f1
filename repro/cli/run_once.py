"""Carries one configuration out and says what came of it; kept under .repro/runs/."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from repro.cli.diagnose import (
    Before,
    comparison,
    diagnosis_text,
    failure_in_runs,
    failure_in_session,
    new_warnings,
    next_flags,
    offer,
    settings_document,
)
from repro.cli.engines import must_be_startable, placed_scene
from repro.cli.left_behind import working
from repro.cli.masks import redactor_for
from repro.cli.options import Source, Waits, Wanted, Where
from repro.cli.output import VERSION, print_json, seconds, talk
from repro.cli.progress import outcome_words, watching
from repro.cli.run_repeat import repeat_document, repeat_text
from repro.cli.wiring import (
    LOGS,
    REQUESTS,
    SCENARIO,
    bench_for,
    fingerprint_reader,
    parse_signature,
    shell_line,
)
from repro.domain.diagnostics import diagnosed
from repro.domain.failure import Signature
from repro.domain.outcome import Failed, Outcome, Passed
from repro.domain.scene import Scene
from repro.domain.stage import STARTUP_ORDER, Stage
from repro.domain.trial import Fresh, Purpose, Trial
from repro.errors import EXIT_COULD_NOT_TEST, EXIT_FAILURE_SEEN, EXIT_GOOD, Interrupted, UsageError
from repro.machine.clock import SystemClock
from repro.recipe.minimal import Derived
from repro.recipe.write import from_scene
from repro.session.codec import failure_to_json
from repro.session.workspace import Workspace
from repro.trial.carry import Carried, Carrier
from repro.trial.keep import KeptRequests
from repro.trial.progress import TrialFinished, TrialStarted


def run_once(
    scenario: Path | None,
    source: Source,
    wanted: Wanted,
    waits: Waits,
    where: Where,
    *,
    repeat: int | None,
    minimal: bool,
    stop_after: str | None,
    target: str | None,
    diagnose: bool,
    as_json: bool,
) -> int:
    """One launch of one end of a scene, or `repeat` of them; see `repro run --help` for the exit codes."""
    claimed = parse_signature(target) if target else None
    until = _stage(stop_after) if stop_after else None
    derived = placed_scene(where, scenario, source, wanted, None)
    scene = derived.scene
    must_be_startable(where, scene)
    with working("run", SystemClock()) as workspace:
        for note in derived.notes:
            talk(f"note: {note}")
        end, purpose = (
            (scene.minimal_configuration, Purpose.MINIMAL_END)
            if minimal
            else (scene.production_configuration, Purpose.PRODUCTION_END)
        )
        first = Trial(end, 0, None, purpose, Fresh.REQUIRED, stop_after=until)
        folder = workspace.new("runs", SystemClock().now())
        trials = [replace(first, repetition=number) for number in range(repeat or 1)]
        launch = scene.launch(end).digest
        before = None
        if diagnose:
            session = failure_in_session(scenario.parent, end.digest) if scenario else None
            before = session or failure_in_runs(workspace, launch)
        carried = _carried(derived, trials, workspace, folder, waits, where, diagnose)
    runs = [_document(each, folder) for each in carried]
    document = runs[0] if repeat is None else {**repeat_document(carried, runs), "run": str(folder)}
    document |= {"launch": launch, "diagnostic": _diagnostic(before, runs[0], carried[0]) if diagnose else None}
    failed = next((c.answer.outcome.failure for c in carried if isinstance(c.answer.outcome, Failed)), None)
    flags = next_flags(failed) if failed is not None and not diagnose and where.endpoint is None else ()
    document["next"] = [offer(sys.argv[1:], flag, redactor_for(scene.environment_from)) for flag in flags]
    (folder / "run.json").write_text(
        json.dumps({"schema": "repro/run", "version": VERSION, **document}, ensure_ascii=False, indent=2) + "\n",
        encoding="utf-8",
    )
    if as_json:
        print_json("run", document)
    else:
        click.echo(_text(carried[0], document, scene) if repeat is None else repeat_text(carried))
        for step in document["next"]:
            click.echo(f"next: {step}")
    return _exit_code([each.answer.outcome for each in carried], claimed)


def _carried(
    derived: Derived,
    trials: Sequence[Trial],
    workspace: Workspace,
    folder: Path,
    waits: Waits,
    where: Where,
    diagnose: bool,
) -> list[Carried]:
    """The launches, shown as they go on; the server is stopped whatever happens."""
    scene, clock = derived.scene, SystemClock()
    redactor = redactor_for(scene.environment_from)
    (folder / SCENARIO).write_text(from_scene(scene, notes=derived.notes, redactor=redactor), encoding="utf-8")
    if diagnose:  # after the scenario is kept: a later run with it is none of diagnosis
        scene = diagnosed(scene)
    read_facts = fingerprint_reader(scene, redactor)
    carried: list[Carried] = []
    with watching() as observer:
        bench = bench_for(scene, workspace, folder, redactor, observer, waits, where)
        kept = KeptRequests(folder / REQUESTS, redactor)
        carrier = Carrier(scene, bench, clock, redactor, read_facts, read_facts(), kept)
        command = shell_line(scene.launch(trials[0].configuration).command, redactor)
        try:
            try:
                for number, trial in enumerate(trials, 1):
                    observer.told(TrialStarted(number, trial, command, True))
                    carried.append(carrier.carry(trial))
                    observer.told(TrialFinished(number, trial, carried[-1].answer))
            finally:
                carrier.close()
        except KeyboardInterrupt:
            raise Interrupted("interrupted; the server was stopped", "start again with the same command") from None
    return carried


def _document(carried: Carried, folder: Path) -> dict[str, Any]:
    """The shape of `repro run --json`."""
    outcome, answer = carried.answer.outcome, carried.answer
    failure = failure_to_json(outcome.failure) if isinstance(outcome, Failed) else None
    reached = (
        failure["reached"] if failure else [s.value for s in outcome.reached] if isinstance(outcome, Passed) else []
    )
    words = {Passed: "passed", Failed: "failed"}.get(type(outcome), "unresolved")
    return {
        "outcome": words,
        "failure": failure,
        "reason": outcome_words(outcome),
        "reached": reached,
        "seconds": round(answer.cost.seconds, 3),
        "log": str(folder / LOGS / carried.log) if carried.log else None,
        "sent": answer.sent,
        "missed": answer.missed,
        "requests": carried.facts,
        "run": str(folder),
    }


def _diagnostic(before: Before | None, run: dict[str, Any], carried: Carried) -> dict[str, Any]:
    """What `run.json` says of a diagnostic re-run."""
    log = Path(run["log"]) if run["log"] else None
    return {
        "settings": settings_document(),
        "before": before.as_json() if before else None,
        "compared": comparison(before.failure if before else None, carried.answer.outcome),
        "warnings": new_warnings(before.log if before else None, log),
    }


def _text(carried: Carried, document: dict[str, Any], scene: Scene) -> str:
    outcome = carried.answer.outcome
    lines = [outcome_words(outcome)]
    if isinstance(outcome, Failed):
        failure = outcome.failure
        lines.append(f"first failing stage: {failure.stage}")
        if failure.root_line:
            lines.append(f"root: line {failure.root_line_no}: {failure.root_line.strip()}")
        if failure.detail:
            lines.append(f"more: {failure.detail}")
    # A server that failed while serving had begun to serve, which is no stage that is over.
    over = [stage for stage in document["reached"] if stage != Stage.SERVING or isinstance(outcome, Passed)]
    if over:
        lines.append(f"proven done: {', '.join(over)}")
    if document["diagnostic"]:
        lines += diagnosis_text(document["diagnostic"]["compared"], document["diagnostic"]["warnings"])
    lines.append(f"took {seconds(document['seconds'])}; log {document['log']}; recipe {scene.recipe}")
    return "\n".join(lines)


def _exit_code(outcomes: Sequence[Outcome], claimed: Signature | None) -> int:
    """One failure is enough for a failure seen; with a claim, one of another type says nothing about it."""
    failures = [outcome.failure for outcome in outcomes if isinstance(outcome, Failed)]
    if failures:
        # The template tells `other` failures apart; a claim made on a command line has none.
        same = claimed is None or all((f.stage, f.family) == (claimed.stage, claimed.family) for f in failures)
        return EXIT_FAILURE_SEEN if same else EXIT_COULD_NOT_TEST
    return EXIT_GOOD if any(isinstance(outcome, Passed) for outcome in outcomes) else EXIT_COULD_NOT_TEST


def _stage(name: str) -> Stage:
    startup = [s.value for s in STARTUP_ORDER if s is not Stage.SERVING]
    if name not in startup:
        raise UsageError(f"{name!r} is no start-up stage", f"there are: {' '.join(startup)}")
    return Stage(name)
