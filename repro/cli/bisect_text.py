"""What a search found, in words for a terminal: the answer first, then the evidence, then where more lies."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from tabulate import tabulate

from repro.bisect import Plan
from repro.cli.diagnose import next_flags
from repro.cli.output import seconds
from repro.cli.wiring import SCENARIO, Finished
from repro.domain.finding import Finding, Member, ResultKind, SearchResult, Tally
from repro.domain.proportion import interval, rate_left_possible
from repro.domain.scene import Scene
from repro.domain.variable import Value, shown
from repro.session.codec import failure_from_json
from repro.session.summary import summary

_CELL = 40  # two of them and the names beside fit a wide terminal

_HEADLINES = {
    ResultKind.FOUND: "FOUND and proven on fresh servers",
    ResultKind.MINIMAL_FAILS: "THE MINIMAL COMMAND FAILS by itself",
    ResultKind.NOT_REPRODUCED: "NOT REPRODUCED: production passes here",
    ResultKind.END_NOT_AS_CLAIMED: "PRODUCTION FAILS, but not as claimed",
    ResultKind.INCONCLUSIVE: "INCONCLUSIVE",
}


def result_text(finished: Finished, scene: Scene) -> str:
    """The whole answer."""
    result = finished.result
    document = summary(finished.events, str(finished.folder))
    parts = ["", _HEADLINES[result.kind] + (f": {result.note}" if result.note else "")]
    numbers = {trial["id"]: trial["n"] for trial in document["trials"]}
    for finding in result.findings:
        parts += ["", *_finding(finding, finished, numbers)]
    if result.set_aside:
        parts += ["", "Set aside (another error, not followed):"]
        parts += [f"  {s.variable}: {s.signature}" for s in result.set_aside]
    if result.still_possible:
        parts += ["", f"Still possible: {', '.join(result.still_possible)}"]
    cost = f"{len(document['trials'])} trials, {document['launches']} launches, {document['requests']} requests"
    parts += ["", f"{cost}, {seconds(document['seconds'])}"]
    parts += _where(finished, result, scene)
    return "\n".join(parts)


def _finding(finding: Finding, finished: Finished, numbers: Mapping[str, int]) -> list[str]:
    """`numbers`: the number of each trial, as it was shown while it ran."""
    lines = [f"{finding.signature}", *_seen(finding, finished)]
    if finding.members:
        rows = [_row(member) for member in finding.members]
        table = tabulate(rows, headers=["variable", "kind", "passes at", "fails at", "between"], disable_numparse=True)
        lines += ["", *("  " + line for line in table.splitlines())]
    lines += ["", f"  failed so {_tally(finding.failed)} where it should fail"]
    if finding.passed.of:
        chance = rate_left_possible(finding.passed.count)
        left = f"; a fault rarer than {100 * chance:.0f} % may have been missed there" if chance < 1 else ""
        lines.append(f"  passed {_tally(finding.passed)} where it should pass{left}")
    for pair in finding.proof:
        state = "holds" if pair.holds else "masked by another error" if pair.masked else "did not hold"
        passing, failing = numbers[pair.passing_trial], numbers[pair.failing_trial]
        lines.append(f"  proof for {pair.variable}: trial {passing} passes, trial {failing} fails: {state}")
    for member in finding.members:
        if member.bracket.exceptions:
            values = ", ".join(shown(v) for v in member.bracket.exceptions)
            lines.append(f"  {member.variable} is no plain threshold: the other way round at {values}")
    return lines


def _seen(finding: Finding, finished: Finished) -> list[str]:
    """The root line of one failure of this kind, and where it stands."""
    for event in finished.events:
        failure = event.get("answer", {}).get("failure") if event["event"] == "finished" else None
        if not failure or (failure["stage"], failure["family"]) != (finding.signature.stage, finding.signature.family):
            continue
        said = failure["root_line"] or failure["detail"]
        lines = [f"  root: {' '.join(said.split())[:300]}"] if said else []
        if failure["root_line_no"] and event["log"]:
            lines.append(f"  log:  {_short(finished.folder)}/logs/{event['log']}, line {failure['root_line_no']}")
        return lines
    return []


def _row(member: Member) -> tuple[str, str, str, str, str]:
    bracket = member.bracket
    return (member.variable, member.kind.value, shown(bracket.passing), shown(bracket.failing), bracket.reason)


def _tally(tally: Tally) -> str:
    low, high = interval(tally.count, tally.of)
    return f"{tally.count} of {tally.of} times (95 %: {100 * low:.0f} to {100 * high:.0f} %)"


def _where(finished: Finished, result: SearchResult, scene: Scene) -> list[str]:
    folder = _short(finished.folder)
    lines = [f"history: git -C {folder}/history.git log --graph --oneline --all", f"logs:    {folder}/logs/"]
    lines += [f"next:    {step}" for step in _next(finished, result)]
    return [*lines, f"recipe:  {scene.recipe}"]


def _next(finished: Finished, result: SearchResult) -> list[str]:
    """What to do now, the most useful first."""
    steps = []
    if any(event["event"] == "stopped" for event in finished.events[-2:]):
        steps.append("repro bisect --resume, with a larger budget or none: nothing is carried out twice")
    if result.findings:
        steps.append(f"repro bundle {finished.folder.name}")
    match result.kind:
        case ResultKind.MINIMAL_FAILS:
            steps += [f"{_minimal_again(finished)} {flag}" for flag in _flags(finished)]
        case ResultKind.NOT_REPRODUCED:
            steps.append("give what production has besides the command: --request, --input-tokens, --concurrency")
        case ResultKind.END_NOT_AS_CLAIMED:
            steps.append("the same search without --target, or with the one that production shows here")
        case ResultKind.INCONCLUSIVE if not steps:
            steps.append("see the trials in the history; once the cause of the doubt is gone, begin a new search")
        case _:
            pass
    return steps


def _flags(finished: Finished) -> tuple[str, ...]:
    """What may be done about the last failure."""
    answers = [event["answer"] for event in finished.events if event["event"] == "finished"]
    failures = [answer["failure"] for answer in answers if answer.get("failure")]
    if not failures or finished.events[0].get("where", {}).get("endpoint"):
        return ()
    return next_flags(failure_from_json(failures[-1]))


def _minimal_again(finished: Finished) -> str:
    """The command that starts the session's minimal command once, where the session started it."""
    where = finished.events[0].get("where", {})
    engine = ["--engine", where["engine"]] if where.get("engine") else []
    nodes = [word for node in where.get("nodes", ()) for word in ("--node", node)]
    scenario = str(_short(finished.folder) / SCENARIO)
    return shlex.join(["repro", "run", "--scenario", scenario, "--minimal", *engine, *nodes])


def _short(folder: Path) -> Path:
    try:
        return folder.relative_to(Path.cwd())
    except ValueError:
        return folder


def plan_text(
    cost: Plan, scene: Scene, ends: Mapping[str, str], notes: Sequence[str], launch_minutes: float, gpus: int
) -> str:
    """The plan: both commands, what is tried in which order, and the price."""
    rows = [
        (v.name, v.kind.value, _cell(v.minimal), _cell(v.production), n)
        for v, (_, n) in zip(scene.variables, cost.single, strict=True)
    ]
    table = tabulate(
        rows,
        headers=["variable", "kind", "minimal", "production", "launches if it alone is the cause"],
        disable_numparse=True,
    )
    low, high = cost.typical_launches
    minutes = cost.most_launches * launch_minutes
    return "\n".join(
        [
            *(f"note: {note}" for note in notes),
            f"minimal:    {ends['minimal']}",
            f"production: {ends['production']}",
            "",
            table,
            "",
            f"One cause: {low} to {high} launches, {_price(low, launch_minutes, gpus)} to "
            f"{_price(high, launch_minutes, gpus)}.",
            f"At worst: {cost.most_launches} launches and {cost.most_trials} trials, {seconds(minutes * 60)}, "
            f"{minutes * gpus / 60:.1f} GPU-hours on {gpus} GPU{'s' if gpus != 1 else ''}.",
            f"A launch is taken to cost {launch_minutes:g} minutes (--launch-minutes); failing ones often cost less.",
            "Tries that something outside the configuration spoiled are repeated and come on top.",
        ]
    )


def _cell(value: Value) -> str:
    """A value that keeps a table readable: JSON and paths are broken into lines."""
    return textwrap.fill(shown(value), _CELL)


def _price(launches: int, launch_minutes: float, gpus: int) -> str:
    minutes = launches * launch_minutes
    return f"{seconds(minutes * 60)} ({minutes * gpus / 60:.1f} GPU-hours)"
