"""The tables of a report: every trial with the rollbacks, the baselines, what was set aside, the environment."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from repro.domain.fingerprint import Fact, Fingerprint
from repro.domain.proportion import rate_left_possible
from repro.domain.trial import Purpose
from repro.domain.variable import shown
from repro.handoff.case import Case, Json
from repro.handoff.english import say
from repro.handoff.figures import percent, signature, tally
from repro.handoff.markdown import cell, escaped, table

# A trial that was derived from a distant one changes many values; the journal has them all.
_MOST_CHANGES = 3
_LONGEST_VALUE = 120


def timeline(case: Case) -> str:
    """All finished trials in order, with what they cost together."""
    tags = _tags(case)
    aside = {s["trial"] for s in case.document.get("set_aside", ())}
    headers = ["number", "purpose", "changed", "parent", "outcome", "requests", "server", "seconds", "remark"]
    rows = [
        (
            str(t["n"]),
            escaped(t["purpose"]),
            _changed(t),
            str(t["parent"] or ""),
            escaped(f"{t['outcome']} {signature(t)}".strip()),
            f"{t['sent'] - t['missed']} of {t['sent']}" if t["sent"] else "",
            say("fresh") if t["launched"] else say("warm"),
            f"{t['seconds']:.1f}",
            _remark(t, tags, aside),
        )
        for t in case.document["trials"]
    ]
    cost = {key: case.document[key] for key in ("launches", "requests", "gpu_hours")}
    costs = say("costs", trials=len(rows), seconds=f"{case.document['seconds']:.0f}", **cost)
    return f"{table([say(f't_{h}') for h in headers], rows)}\n\n{costs}"


def stable_baselines(case: Case) -> str:
    """Each tag with how often its configuration passed, and the failure rate that leaves possible."""
    rows = []
    for stable in case.document.get("stable", ()):
        trial = case.trial(stable["trial"])
        if trial is None:
            continue
        passed, of = counts(case, stable["trial"])
        left = say("below", percent=percent(rate_left_possible(passed))) if passed == of else ""
        rows.append((stable["tag"], str(trial["n"]), _changed(trial), tally(passed, of), left))
    return table([say(f"t_{h}") for h in ("tag", "number", "changed", "tally", "left")], rows)


def set_aside(case: Case) -> str:
    """The errors that were met and not followed."""
    rows = []
    for aside in case.document.get("set_aside", ()):
        trial = case.trial(aside["trial"])
        root = (trial["root_line"] or trial["detail"]) if trial else ""
        rows.append((cell(aside["variable"]), signature(aside), str(trial["n"]) if trial else "", cell(root[:300])))
    return table([say(f"t_{h}") for h in ("variable", "error", "number", "root")], rows)


def environment(case: Case) -> str:
    """Every fact of the fingerprint with its evidence."""
    facts = Fingerprint.from_json(case.begun["fingerprint"])
    rows = [
        (cell(name), say(kind), _fact(fact), fact.label.value)
        for kind, part in (("pinned", facts.pinned), ("observed", facts.observed))
        for name, fact in sorted(part.items())
    ]
    recipe = say("recipe", name=case.scene.recipe, digest=case.begun["recipe"]["digest"])
    return f"{table([say(f't_{h}') for h in ('fact', 'kind', 'value', 'label')], rows)}\n\n{escaped(recipe)}"


def counts(case: Case, trial_id: str) -> tuple[int, int]:
    """(passed, judged) over all trials of the configuration that `trial_id` tried."""
    own = configuration_of(trial_id)
    outcomes = Counter(t["outcome"] for t in case.document["trials"] if configuration_of(t["id"]) == own)
    return outcomes["passed"], outcomes["passed"] + outcomes["failed"]


def configuration_of(trial_id: str) -> str:
    """A trial's id is its configuration's digest and a repetition."""
    return trial_id.rsplit("-", 1)[0]


def _tags(case: Case) -> Mapping[str, str]:
    return {configuration_of(s["trial"]): s["tag"] for s in case.document.get("stable", ())}


def _remark(trial: Json, tags: Mapping[str, str], aside: set[str]) -> str:
    tag = tags.get(configuration_of(trial["id"]), "")
    if trial["id"] in aside:
        return say("remark_set_aside")
    if trial["purpose"] == Purpose.BASELINE_AGAIN.value:
        return say("remark_back", tag=tag or trial["id"])
    rises = trial["purpose"] in (Purpose.MINIMAL_END.value, Purpose.LADDER.value, Purpose.SET_ASIDE_AGAIN.value)
    return say("remark_stable", tag=tag) if tag and rises and trial["outcome"] == "passed" else ""


def _changed(trial: Json) -> str:
    if trial["parent"] is None:
        production = trial["purpose"] == Purpose.PRODUCTION_END.value
        return say("end_production" if production else "end_minimal")
    names = trial["changed"]
    if not names:
        return say("nothing_changed")
    told = [cell(f"{name} = {shown(trial['values'][name])}") for name in names[:_MOST_CHANGES]]
    if len(names) > _MOST_CHANGES:
        told.append(say("more_changed", count=len(names) - _MOST_CHANGES))
    return ", ".join(told)


def _fact(fact: Fact) -> str:
    if not fact.known:
        return escaped(say("unavailable", reason=fact.reason))
    return cell(_short(fact.value))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
