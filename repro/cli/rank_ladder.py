"""`repro run --rank-ladder`: from bare sockets up to the minimal command, rung by rung, to the first that fails.

For a launch whose ranks do not come together. Each rung adds one thing to the rung below, so the first failing one
names what breaks the group and all below it what does not. The launch rungs are trials like every other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from repro.cli.engines import must_be_startable, placed_scene
from repro.cli.left_behind import working
from repro.cli.masks import redactor_for
from repro.cli.options import Source, Waits, Wanted, Where
from repro.cli.output import VERSION, print_json, seconds, talk
from repro.cli.progress import outcome_words, watching
from repro.cli.wiring import LOGS, REQUESTS, SCENARIO, bench_for, fingerprint_reader, shell_line
from repro.domain.command import Command, as_int
from repro.domain.command.layout import gpu_count
from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.scene import Scene
from repro.domain.stage import Stage
from repro.domain.trial import Fresh, Purpose, Trial
from repro.domain.variable import Kind
from repro.errors import EXIT_COULD_NOT_TEST, EXIT_FAILURE_SEEN, EXIT_GOOD, Interrupted
from repro.machine.clock import Clock, SystemClock
from repro.machine.namespaces import find_namespace
from repro.recipe.write import from_scene
from repro.redact.redactor import Redactor
from repro.runner.environment import launch_environment
from repro.runner.group_check import ALL_REDUCE, REACH, Checked, Rank, check_group
from repro.runner.nodes import parse_node
from repro.runner.record import MARK
from repro.session.codec import failure_to_json
from repro.session.workspace import Workspace
from repro.snapshot.inside import host_interpreter
from repro.triage import template
from repro.trial.carry import Carrier
from repro.trial.keep import KeptRequests
from repro.trial.live import Bench
from repro.trial.progress import Observer, TrialFinished, TrialStarted


@dataclass(frozen=True)
class Step:
    """A rung before it is tried: `rules_out` holds once it has passed, `points_to` if it is the first to fail."""

    name: str
    rules_out: str
    points_to: str
    flags: tuple[tuple[str, str | bool], ...] = ()
    stop_after: Stage | None = None


@dataclass(frozen=True)
class Rung:
    """A rung that was tried."""

    step: Step
    outcome: Outcome
    seconds: float
    log: str | None = None


CHECKS = (
    Step(
        REACH,
        "the network between the ranks and its ports",
        "the network between the ranks: no line of vLLM, PyTorch or NCCL has run",
    ),
    Step(
        ALL_REDUCE,
        "PyTorch's process group with this backend, the fabric under it",
        "the backend, its settings or the fabric under it: vLLM, the weights and the graphs have no part in it",
    ),
)
_EAGER, _DUMMY = ("--enforce-eager", True), ("--load-format", "dummy")
LAUNCHES = (
    # Dummy weights answer nonsense: ready is all that can be asked of them.
    Step(
        "dummy weights, eager",
        "what vLLM adds to the group (its communicators, shared memory between the workers)",
        "what vLLM itself does to form the group or to run on it, not the files of the weights and not the graphs",
        (_DUMMY, _EAGER),
        Stage.API_READY,
    ),
    Step(
        "weights, eager",
        "the weights: their files, the time and the memory that they take",
        "the weights: their files, or the time or memory that they take on each rank",
        (_EAGER,),
    ),
    Step(
        "graphs",
        "compilation and graphs",
        "compilation or the capture of graphs. That eager mode passes is masking, no mend",
    ),
)


def run_ladder(
    scenario: Path | None, source: Source, wanted: Wanted, waits: Waits, where: Where, *, as_json: bool
) -> int:
    """All rungs up to the first that fails. 1 when one fails, 125 when a launch could not be tested, else 0."""
    derived = placed_scene(where, scenario, source, wanted, None)
    scene = derived.scene
    must_be_startable(where, scene)
    clock = SystemClock()
    with working("run --rank-ladder", clock) as workspace:
        folder = workspace.new("runs", clock.now())
        redactor = redactor_for(scene.environment_from)
        (folder / SCENARIO).write_text(from_scene(scene, notes=derived.notes, redactor=redactor), encoding="utf-8")
        rungs = []
        try:
            for rung in _tried(scene, workspace, folder, redactor, waits, where, clock):
                rungs.append(rung)
                talk(f"rung {len(rungs)}, {rung.step.name}: {_words(rung.outcome)}")
        except KeyboardInterrupt:
            raise Interrupted("interrupted; the server was stopped", "start again with the same command") from None
    document = ladder_document(rungs, folder)
    text = json.dumps({"schema": "repro/run", "version": VERSION, **document}, ensure_ascii=False, indent=2)
    (folder / "run.json").write_text(text + "\n", encoding="utf-8")
    if as_json:
        print_json("run", document)
    else:
        click.echo(ladder_text(rungs))
    return {"failed": EXIT_FAILURE_SEEN, "passed": EXIT_GOOD}.get(document["outcome"], EXIT_COULD_NOT_TEST)


def _tried(
    scene: Scene,
    workspace: Workspace,
    folder: Path,
    redactor: Redactor,
    waits: Waits,
    where: Where,
    clock: Clock,
) -> Iterator[Rung]:
    for step in CHECKS:
        begun = clock.monotonic()
        outcome = checked_outcome(step, _checked(step, scene, where, clock), redactor)
        yield Rung(step, outcome, clock.monotonic() - begun)
        if isinstance(outcome, Failed):
            return
    with watching() as observer:
        bench = bench_for(scene, workspace, folder, redactor, observer, waits, where)
        for number, (step, rung_scene) in enumerate(launch_rungs(scene), len(CHECKS) + 1):
            rung = _launched(number, step, rung_scene, bench, folder, redactor, observer, clock)
            yield rung
            if not isinstance(rung.outcome, Passed):
                return


def _launched(
    number: int,
    step: Step,
    scene: Scene,
    bench: Bench,
    folder: Path,
    redactor: Redactor,
    observer: Observer,
    clock: Clock,
) -> Rung:
    facts = fingerprint_reader(scene, redactor)
    kept = KeptRequests(folder / REQUESTS, redactor)
    carrier = Carrier(scene, bench, clock, redactor, facts, facts(), kept)
    end = scene.minimal_configuration
    trial = Trial(end, number, None, Purpose.MINIMAL_END, Fresh.REQUIRED, stop_after=step.stop_after)
    observer.told(TrialStarted(number, trial, shell_line(scene.launch(end).command, redactor), True))
    try:
        carried = carrier.carry(trial)
        observer.told(TrialFinished(number, trial, carried.answer))
    finally:
        carrier.close()
    log = str(folder / LOGS / carried.log) if carried.log else None
    return Rung(step, carried.answer.outcome, carried.answer.cost.seconds, log)


def launch_rungs(scene: Scene) -> list[tuple[Step, Scene]]:
    """The launch rungs of the minimal command; one that would start what the rung below started is left out."""
    command = scene.launch(scene.minimal_configuration).command
    asked = tuple((v.name, v.minimal) for v in scene.variables if v.kind is Kind.REQUEST)
    rungs: list[tuple[Step, Scene]] = []
    for step in LAUNCHES:
        own = command
        for name, value in step.flags:
            own = own.with_flag(name, value)
        if not rungs or own.argv() != rungs[-1][1].minimal.argv():
            fixed = (*scene.fixed_request, *asked)
            rungs.append((step, replace(scene, variables=(), production=own, minimal=own, fixed_request=fixed)))
    return rungs


def _checked(step: Step, scene: Scene, where: Where, clock: Clock) -> Checked:
    launch = scene.launch(scene.minimal_configuration)
    if launch.command.container is not None:
        return Checked(None, "the ranks run inside a container, which this check does not enter")
    if not where.nodes and _nodes_of(launch.command) > 1:
        return Checked(None, "other hosts have ranks of this launch, and this check runs on this one")
    environment = launch_environment(launch, os.environ, (MARK, ""))
    try:
        interpreter = host_interpreter(launch.command.argv(), environment)
    except LookupError as error:
        return Checked(None, str(error))
    world = gpu_count(launch.command)
    if not where.nodes:
        return check_group(step.name, interpreter, [Rank((), environment)] * world, "127.0.0.1")
    nodes = [parse_node(text, rank, clock) for rank, text in enumerate(where.nodes)]
    each = max(1, world // len(nodes))
    ranks = [
        Rank(find_namespace(text.partition(":")[2]).words, {**environment, **dict(node.environment)})
        for text, node in zip(where.nodes, nodes, strict=True)
        for _ in range(each)
    ]
    return check_group(step.name, interpreter, ranks, nodes[0].address)


def _nodes_of(command: Command) -> int:
    value = command.flag("--nnodes")
    return (as_int(value) if isinstance(value, str) else None) or 1


def checked_outcome(step: Step, checked: Checked, redactor: Redactor) -> Outcome:
    """A check's result in the words of every trial."""
    said = redactor.text(checked.said)
    if checked.passed is None:
        return Unresolved(said, again=False)
    if checked.passed:
        return Passed(())
    family = Family.RENDEZVOUS_TIMEOUT
    if step.name == ALL_REDUCE:
        family = Family.NCCL if checked.backend == "nccl" else Family.GLOO
    detail = f"rank {checked.rank} failed first" + (f", backend {checked.backend}" if checked.backend else "")
    return Failed(Failure(Stage.COMM_GROUP, family, said, None, template(said), confidence=0.9, detail=detail))


def ladder_document(rungs: Sequence[Rung], folder: Path) -> dict[str, Any]:
    """The shape of `repro run --rank-ladder --json`: that of a run, for the rung that decided, and all rungs."""
    last = rungs[-1]
    failure = failure_to_json(last.outcome.failure) if isinstance(last.outcome, Failed) else None
    return {
        "outcome": _kind(last.outcome),
        "failure": failure,
        "reason": outcome_words(last.outcome),
        "reached": list(last.outcome.reached)
        if isinstance(last.outcome, Passed)
        else (failure or {}).get("reached", []),
        "seconds": round(sum(rung.seconds for rung in rungs), 3),
        "log": last.log,
        "failing_rung": last.step.name if failure else None,
        "ruled_out": [rung.step.rules_out for rung in rungs if isinstance(rung.outcome, Passed)],
        "rungs": [
            {
                "rung": r.step.name,
                "outcome": _kind(r.outcome),
                "said": _words(r.outcome),
                "seconds": round(r.seconds, 3),
            }
            for r in rungs
        ],
        "run": str(folder),
    }


def ladder_text(rungs: Sequence[Rung]) -> str:
    """The same for people."""
    lines = [f"{n}. {r.step.name}: {_words(r.outcome)} ({seconds(r.seconds)})" for n, r in enumerate(rungs, 1)]
    last = rungs[-1]
    if isinstance(last.outcome, Failed):
        failure = last.outcome.failure
        lines += [f"first failing rung: {last.step.name}, {failure.signature}"]
        lines += [f"root: {failure.root_line.strip()}"] if failure.root_line else []
        lines += [f"more: {failure.detail}"] if failure.detail else []
        lines += [f"points to: {last.step.points_to}"]
    elif isinstance(last.outcome, Passed):
        lines.append("every launch came up: the minimal command does not fail here now")
    lines += [f"ruled out: {r.step.rules_out}" for r in rungs if isinstance(r.outcome, Passed)]
    return "\n".join([*lines, *([f"log {last.log}"] if last.log else [])])


def _kind(outcome: Outcome) -> str:
    return {Passed: "passed", Failed: "failed"}.get(type(outcome), "unresolved")


def _words(outcome: Outcome) -> str:
    match outcome:
        case Passed():
            return "passed"
        case Failed(failure):
            return f"failed, {failure.signature}"
        case Unresolved(reason, _):
            return f"not tested: {reason}"
