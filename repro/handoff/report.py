"""REPORT.md: for a reader who has two minutes. The answer first, then the pair, then everything it rests on.

Built from a case and from what the bundle holds of it (`Enclosed`), so that the report never names a file that is not
there. All text passes the redactor once more as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from repro.domain.finding import ResultKind
from repro.domain.proportion import rate_left_possible
from repro.domain.scene import Scene
from repro.domain.stage import STARTUP_ORDER
from repro.domain.variable import shown
from repro.handoff.case import Case, Json, Pair, Side
from repro.handoff.english import say
from repro.handoff.figures import percent, signature, tally
from repro.handoff.log_excerpt import AFTER, BEFORE, LOG_LIMIT, Excerpt
from repro.handoff.markdown import block, bullets, cell, code, escaped, table
from repro.handoff.report_limits import limits, ruled_out, run_again
from repro.handoff.report_trials import counts, environment, set_aside, stable_baselines, timeline
from repro.handoff.script import side_text
from repro.redact.redactor import Redactor

# Lines around the root in the report itself; the file in logs/ has more.
_NEAR_BEFORE, _NEAR_AFTER = 6, 12
_WIDEST = 400  # characters; a line of vLLM that dumps its configuration has thousands


@dataclass(frozen=True)
class Enclosed:
    """What the bundle holds, by trial id: body files, logs' excerpts with their files. `masked`: trials whose bodies
    held a secret; `cut`: log file to lines left out; `rebuild`: the command that makes a missing request again."""

    requests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    masked: frozenset[str] = frozenset()
    excerpts: Mapping[str, Excerpt] = field(default_factory=dict)
    context_files: Mapping[str, str] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)
    rebuild: Mapping[str, str] = field(default_factory=dict)


def report(case: Case, enclosed: Enclosed, redactor: Redactor) -> str:
    """The whole document."""
    parts: list[str] = [f"# {escaped(say('h_title', scene=case.scene.name))}", *_headline(case)]
    for pair in case.pairs:
        parts += _pair(case, pair)
        parts += _commands(pair, redactor)
        parts += _requests(pair, enclosed)
        parts += _root(pair, enclosed, again=pair is not case.pairs[0])
        parts += _stages(pair)
    for key, text in (
        ("h_trials", timeline(case)),
        ("h_set_aside", set_aside(case)),
        ("h_stable", stable_baselines(case)),
        ("h_environment", environment(case)),
        ("h_ruled_out", bullets(ruled_out(case))),
        ("h_not_known", bullets(limits(case, enclosed.cut))),
        ("h_files", bullets(_files(enclosed))),
        ("h_again", bullets(run_again(case, bool(enclosed.requests)))),
    ):
        if text:
            parts += [f"## {say(key)}", text]
    return redactor.text("\n\n".join(parts) + "\n")


def _files(enclosed: Enclosed) -> Iterator[str]:
    yield say("file_commands", files=code("*-command*.txt"))
    if enclosed.requests:
        yield say("file_requests", files=code("request*.json"))
    yield say("file_scenario")
    yield say("file_logs", before=BEFORE, after=AFTER, limit=LOG_LIMIT // 2**20)
    yield say("file_manifest")


def headline(case: Case) -> str:
    """One sentence: what breaks, at which value; or that it is not known."""
    document = case.document
    kind = document["outcome"]
    finding = next(iter(document.get("findings", ())), None)
    if kind is None:
        return say("unfinished")
    if kind == ResultKind.MINIMAL_FAILS.value and finding is not None:
        return say("minimal_fails", signature=signature(finding))
    if kind == ResultKind.END_NOT_AS_CLAIMED.value:
        return say("end_not_as_claimed", signature=", ".join(map(signature, document["target"])))
    if finding is not None and finding["variables"]:
        key = "found" if kind == ResultKind.FOUND.value and finding["proven"] else "found_weak"
        members = " and ".join(
            say("member", name=v["name"], failing=shown(v["failing"]), passing=shown(v["passing"]))
            for v in finding["variables"]
        )
        return say(key, signature=signature(finding), members=members)
    return say(kind)


def _headline(case: Case) -> Iterator[str]:
    yield f"**{escaped(headline(case))}**"
    for finding in case.document.get("findings", ()):
        failed = tally(finding["failed"]["count"], finding["failed"]["of"])
        if finding["passed"]["of"]:
            passed = tally(finding["passed"]["count"], finding["passed"]["of"])
            yield say("shown", failed=failed, passed=passed)
        else:
            yield say("shown_failed", failed=failed)
        lines = list(_brackets(finding))
        if lines:
            yield bullets(map(escaped, lines))
    end = case.pairs[0].failing
    if end.trial["outcome"] == "passed":
        count, of = counts(case, end.id)
        yield say("end_passed", passed=tally(count, of), percent=percent(rate_left_possible(count)))
    if case.document.get("note"):
        yield escaped(say("note", note=case.document["note"]))
    if simulated(case.scene):
        yield say("simulated")


def _brackets(finding: Json) -> Iterator[str]:
    for v in finding["variables"]:
        sides = {"passing": shown(v["passing"]), "failing": shown(v["failing"])}
        yield say("bracket", name=v["name"], **sides, reason=v["reason"])
        if v["exceptions"]:
            yield say("exceptions", name=v["name"], values=", ".join(map(shown, v["exceptions"])))


def simulated(scene: Scene) -> bool:
    """Whether the server was the built-in stand-in."""
    return "repro.simulator" in scene.production.program


def _pair(case: Case, pair: Pair) -> Iterator[str]:
    if pair.passing is None:
        yield f"## {say('h_side')}"
        yield escaped(f"{say('trial', id=pair.failing.id)}: {_outcome(pair.failing)}")
        rows = [(cell(v.name), cell(shown(pair.failing.configuration[v.name]))) for v in case.scene.variables]
        yield table([say("t_variable"), say("t_value")], rows)
        return
    key = "h_pair_unproven" if pair.state == "unproven" else "h_pair"
    yield f"## {escaped(say(key, variable=pair.variable))}"
    yield say(f"pair_{pair.state}")
    good, bad = pair.passing, pair.failing
    rows3 = [
        (cell(v.name), cell(left), cell(right), say("differs") if left != right else "")
        for v in case.scene.variables
        for left, right in [(shown(good.configuration[v.name]), shown(bad.configuration[v.name]))]
    ]
    heads = [f"{say(f't_{word}')}: {side.id}" for word, side in (("passing", good), ("failing", bad))]
    yield table([say("t_variable"), *heads, say("t_differs")], rows3)


def _outcome(side: Side) -> str:
    return f"{side.trial['outcome']} {signature(side.trial)}".strip()


def _commands(pair: Pair, redactor: Redactor) -> Iterator[str]:
    failing = side_text(pair.failing, redactor)
    if pair.passing is None:
        yield f"{say('only_command')}\n\n{block(failing, 'sh')}"
        return
    passing = side_text(pair.passing, redactor)
    yield f"### {say('h_commands')}"
    if passing == failing:
        yield f"{say('same_command')}\n\n{block(failing, 'sh')}"
    else:
        yield f"{say('passing_command')}\n\n{block(passing, 'sh')}"
        yield f"{say('failing_command')}\n\n{block(failing, 'sh')}"


def _requests(pair: Pair, enclosed: Enclosed) -> Iterator[str]:
    for side, key in ((pair.passing, "passing_command"), (pair.failing, "failing_command")):
        if side is None:
            continue
        label = f"{say(key)} " if pair.passing is not None else ""
        files = enclosed.requests.get(side.id)
        if files and side.requests:
            # A server that fails tells no count; the prompt was built to this one with its tokenizer.
            tokens = side.shape.input_tokens or side.trial["requests"].get("prompt_tokens")
            text = say(
                "request",
                path=side.requests.path,
                bodies=len(files),
                at_once=side.requests.at_once,
                tokens=say("request_unknown") if tokens is None else shown(tokens),
                files=", ".join(map(code, files)),
            )
            if side.requests.omitted:
                text += f" {say('request_omitted', count=side.requests.omitted)}"
            if side.id in enclosed.masked:
                text += f" {say('request_masked')}"
            yield f"{label}{text}"
        else:
            yield f"{label}{say('request_absent')}\n\n{block(enclosed.rebuild[side.id], 'sh')}"


def _root(pair: Pair, enclosed: Enclosed, again: bool) -> Iterator[str]:
    """The root line in its log; of a further pair only where it stands, since it is the same error once more."""
    yield f"### {say('h_root')}"
    trial = pair.failing.trial
    if not pair.failing.failed:
        yield say("no_failure")
    elif (lines := enclosed.excerpts.get(pair.failing.id)) is None:
        yield say("no_log")
    elif again and lines.root is not None:
        file = code(enclosed.context_files[pair.failing.id])
        yield say("root_again", signature=signature(trial), number=lines.root, log=code(trial["log"]), file=file)
    else:
        log = code(str(trial["log"]))
        if lines.root is None:
            yield say("no_root", log=log, detail=code(str(trial["detail"])))
        else:
            yield say(
                "root",
                signature=signature(trial),
                number=lines.root,
                log=log,
                before=BEFORE,
                after=AFTER,
                file=code(enclosed.context_files[pair.failing.id]),
            )
        yield block(lines.around(_NEAR_BEFORE, _NEAR_AFTER).text(_WIDEST))
    if pair.passing is not None and pair.passing.failed:
        yield say("other_error", signature=signature(pair.passing.trial))


def _stages(pair: Pair) -> Iterator[str]:
    sides = [side for side in (pair.passing, pair.failing) if side is not None]
    words = {"failed": "t_failing", "passed": "t_passing"}
    heads = [f"{say(words.get(side.trial['outcome'], 't_unresolved'))}: {side.id}" for side in sides]
    rows = [[cell(stage.value), *(_came(side, stage.value) for side in sides)] for stage in STARTUP_ORDER]
    yield f"### {say('h_stages')}"
    yield table([say("stage"), *heads], rows)


def _came(side: Side, stage: str) -> str:
    if side.trial["stage"] == stage:
        return say("stage_fails")
    return say("stage_done") if stage in side.trial["reached"] else say("stage_not")
