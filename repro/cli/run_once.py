"""Carries one configuration out and says what came of it; kept under .repro/runs/."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from repro.cli.left_behind import working
from repro.cli.options import Source, Waits, Wanted
from repro.cli.output import VERSION, print_json, seconds, talk
from repro.cli.production import ready_scene
from repro.cli.progress import outcome_words, watching
from repro.cli.wiring import (
    LOGS,
    REQUESTS,
    SCENARIO,
    bench_for,
    fingerprint_reader,
    must_be_startable,
    parse_signature,
    redactor_for,
    shell_line,
)
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
    *,
    minimal: bool,
    stop_after: str | None,
    target: str | None,
    as_json: bool,
) -> int:
    """One launch of one end of a scene; see `repro run --help` for the exit codes."""
    claimed = parse_signature(target) if target else None
    until = _stage(stop_after) if stop_after else None
    derived = ready_scene(scenario, source, wanted, None)
    scene = derived.scene
    must_be_startable(scene)
    with working("run", SystemClock()) as workspace:
        for note in derived.notes:
            talk(f"note: {note}")
        end, purpose = (
            (scene.minimal_configuration, Purpose.MINIMAL_END)
            if minimal
            else (scene.production_configuration, Purpose.PRODUCTION_END)
        )
        trial = Trial(end, 0, None, purpose, Fresh.REQUIRED, stop_after=until)
        folder = workspace.new("runs", SystemClock().now())
        carried = _carried(derived, trial, workspace, folder, waits)
    document = _document(carried, folder)
    (folder / "run.json").write_text(
        json.dumps({"schema": "repro/run", "version": VERSION, **document}, ensure_ascii=False, indent=2) + "\n",
        encoding="utf-8",
    )
    if as_json:
        print_json("run", document)
    else:
        click.echo(_text(carried, document, scene))
    return _exit_code(carried.answer.outcome, claimed)


def _carried(derived: Derived, trial: Trial, workspace: Workspace, folder: Path, waits: Waits) -> Carried:
    """The one launch, shown as it goes on; the server is stopped whatever happens."""
    scene, clock = derived.scene, SystemClock()
    redactor = redactor_for(scene.environment_from)
    (folder / SCENARIO).write_text(from_scene(scene, notes=derived.notes, redactor=redactor), encoding="utf-8")
    read_facts = fingerprint_reader(scene, redactor)
    with watching() as observer:
        bench = bench_for(scene, workspace, folder, redactor, observer, waits)
        kept = KeptRequests(folder / REQUESTS, redactor)
        carrier = Carrier(scene, bench, clock, redactor, read_facts, read_facts(), kept)
        command = shell_line(scene.launch(trial.configuration).command, redactor)
        observer.told(TrialStarted(1, trial, command, True))
        try:
            try:
                carried = carrier.carry(trial)
            finally:
                carrier.close()
        except KeyboardInterrupt:
            raise Interrupted("interrupted; the server was stopped", "start again with the same command") from None
        observer.told(TrialFinished(1, trial, carried.answer))
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
    if document["reached"]:
        lines.append(f"proven done: {', '.join(document['reached'])}")
    lines.append(f"took {seconds(document['seconds'])}; log {document['log']}; recipe {scene.recipe}")
    return "\n".join(lines)


def _exit_code(outcome: Outcome, claimed: Signature | None) -> int:
    match outcome:
        case Passed():
            return EXIT_GOOD
        case Failed(failure):
            # The template tells `other` failures apart; a claim made on a command line has none.
            same = claimed is None or (failure.stage, failure.family) == (claimed.stage, claimed.family)
            return EXIT_FAILURE_SEEN if same else EXIT_COULD_NOT_TEST
        case _:
            return EXIT_COULD_NOT_TEST


def _stage(name: str) -> Stage:
    startup = [s.value for s in STARTUP_ORDER if s is not Stage.SERVING]
    if name not in startup:
        raise UsageError(f"{name!r} is no start-up stage", f"there are: {' '.join(startup)}")
    return Stage(name)
