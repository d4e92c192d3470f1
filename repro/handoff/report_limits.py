"""What a report must not leave out: what was ruled out and by what, what is not known, how to see it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from repro.domain.failure import Family
from repro.domain.fingerprint import Fingerprint
from repro.domain.proportion import interval, rate_left_possible, tries_for_rate
from repro.domain.variable import shown
from repro.handoff.case import Case
from repro.handoff.english import say
from repro.handoff.figures import percent, signature
from repro.handoff.markdown import code
from repro.handoff.report_trials import counts
from repro.handoff.script import passed_names
from repro.session.codec import value_to_json


def ruled_out(case: Case) -> Iterator[str]:
    """Variables that are not needed for the fault, and those that production's value did no harm in."""
    members = _members(case)
    needless: list[str] = []
    if members:
        failing = [pair.failing.configuration for pair in case.pairs]
        needless = [
            v.name
            for v in case.scene.variables
            if v.name not in members and all(c[v.name] == v.minimal for c in failing)
        ]
    passed = [name for name in _passed_at_production(case) if name not in members and name not in needless]
    if needless:
        yield say("out_minimal", names=_names(needless))
    if passed:
        yield say("out_passed", names=_names(passed))
    if not needless and not passed:
        yield say("out_nothing")


def limits(case: Case, cut: Mapping[str, int]) -> Iterator[str]:
    """Each thing that a reader could take for known and that is not."""
    document = case.document
    yield say("not_deterministic")
    for finding in document.get("findings", ()):
        yield from _how_often(finding["failed"], finding["passed"])
        if not finding["alone"]:
            yield say("not_alone")
        for v in finding["variables"]:
            if _gap(v):
                yield say("between", passing=shown(v["passing"]), failing=shown(v["failing"]), name=code(v["name"]))
    of = [counts(case, s["trial"])[1] for s in document.get("stable", ())]
    if of:
        yield say("baselines_once", least=min(of), most=max(of))
    aside = [f"{code(s['variable'])} ({signature(s)})" for s in document.get("set_aside", ())]
    if aside:
        yield say("not_followed", names=", ".join(aside))
    if document.get("still_possible"):
        yield say("still_possible", names=_names(document["still_possible"]))
    if untried := [n for n in _untried(case) if n not in document.get("still_possible", ())]:
        yield say("never_tried", names=_names(untried))
    facts = Fingerprint.from_json(case.begun["fingerprint"])
    if absent := [name for name, fact in sorted(facts.pinned.items()) if not fact.known]:
        yield say("no_facts", names=_names(absent))
    if any(pair.failing.trial["family"] == Family.BAD_OUTPUT.value for pair in case.pairs):
        yield say("judged_by_status")
    for name, lines in sorted(cut.items()):
        yield say("log_cut", name=code(name), lines=lines)
    yield say("no_rerun")


def run_again(case: Case, sends: bool) -> Iterator[str]:
    """The commands, the shortest first."""
    several = len([pair for pair in case.pairs if pair.passing is not None]) > 1
    first = case.pairs[0]
    yield say("again_failing" if first.failing.failed else "again_only")
    for pair in case.pairs:
        if pair.passing is not None:
            yield say("again_passing", name=f" {pair.variable}" if several else "")
    command = first.failing.launch.command
    needs = list(dict.fromkeys((command.argv()[0], command.program[0], "curl", *passed_names(first.failing))))
    yield say("again_needs", names=_names(needs))
    if sends:
        yield say("again_curl")
    yield say("again_search")
    yield say("again_history", session=case.session)
    yield say("again_sums")


def _how_often(failed: Mapping[str, int], passed: Mapping[str, int]) -> Iterator[str]:
    low, high = interval(failed["count"], failed["of"])
    yield say("tried_fail", of=failed["of"], low=percent(low), high=percent(high))
    if passed["count"] < passed["of"]:
        yield say("passed_some", **passed)
    elif passed["of"]:
        left = rate_left_possible(passed["count"])
        yield say("tried_pass", of=passed["of"], percent=percent(left), needed=tries_for_rate(0.05))


def _gap(variable: Mapping[str, Any]) -> bool:
    """Whether values lie between the two ends of a bracket."""
    ends = (variable["passing"], variable["failing"])
    return all(type(end) is int for end in ends) and abs(ends[1] - ends[0]) > 1


def _members(case: Case) -> set[str]:
    return {v["name"] for finding in case.document.get("findings", ()) for v in finding["variables"]}


def _passed_at_production(case: Case) -> list[str]:
    passed = [t["values"] for t in case.document["trials"] if t["outcome"] == "passed"]
    return [v.name for v in case.scene.variables if any(t[v.name] == value_to_json(v.production) for t in passed)]


def _untried(case: Case) -> list[str]:
    """Variables that no trial but production itself had at production's value."""
    ends = {t["id"] for t in case.document["trials"] if t["parent"] is None}
    tried = [t["values"] for t in case.document["trials"] if t["id"] not in ends]
    return [
        v.name
        for v in case.scene.variables
        if not any(values[v.name] == value_to_json(v.production) for values in tried)
    ]


def _names(names: Iterable[str]) -> str:
    return ", ".join(code(name) for name in names)
