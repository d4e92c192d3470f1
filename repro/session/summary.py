"""What a journal says, as the document that `repro bisect --json` prints and that reports are made from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from repro.session.journal import Event


def trials_of(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The finished trials in the order they were carried out.

    Each {n, id, parent, purpose, reason, changed, values, outcome, stage, family, root_line, launched, seconds, sent,
    missed, log, requests, detail}; `parent` and `n` are numbers of this list from 1, `changed` are the variables that
    differ from the parent.
    """
    asked = {t["id"]: (t, e["reason"]) for e in events if e["event"] == "ask" for t in e["trials"]}
    finished = [e for e in events if e["event"] == "finished"]
    numbers = {e["answer"]["trial"]: n for n, e in enumerate(finished, 1)}
    return [_trial(n, e, asked, numbers) for n, e in enumerate(finished, 1)]


def _trial(
    number: int, event: Event, asked: Mapping[str, tuple[dict[str, Any], str]], numbers: Mapping[str, int]
) -> dict[str, Any]:
    answer = event["answer"]
    trial, reason = asked[answer["trial"]]
    failure = answer.get("failure") or {}
    parent = asked[trial["parent"]][0]["values"] if trial["parent"] in asked else trial["values"]
    return {
        "n": number,
        "id": trial["id"],
        "parent": numbers.get(trial["parent"]),
        "purpose": trial["purpose"],
        "reason": reason,
        "changed": [name for name, value in trial["values"].items() if parent[name] != value],
        "values": trial["values"],
        "outcome": answer["outcome"],
        "stage": failure.get("stage"),
        "family": failure.get("family"),
        "root_line": failure.get("root_line"),
        "root_line_no": failure.get("root_line_no"),
        "detail": failure.get("detail") or answer.get("reason", ""),
        "reached": failure.get("reached", answer.get("reached", [])),
        "launched": answer["launches"] > 0,
        "launches": answer["launches"],
        "seconds": answer["seconds"],
        "sent": answer["sent"],
        "missed": answer["missed"],
        "fresh": trial["fresh"] == "required",
        "log": event.get("log"),
        "requests": event.get("requests") or {},
        "at": event["at"],
    }


def summary(events: Sequence[Event], session: str) -> dict[str, Any]:
    """The whole document: result, trials and costs. Without a result yet, `outcome` is None.

    `gpu_hours` counts the seconds of all trials on the GPUs of the layout; 0 where the machine has none.
    """
    trials = trials_of(events)
    result = next((dict(e) for e in reversed(events) if e["event"] == "result"), None) or {"outcome": None}
    for key in ("n", "at", "event"):
        result.pop(key, None)
    begun = next((e for e in events if e["event"] == "session"), {})
    spent = sum(t["seconds"] for t in trials)
    return {
        **result,
        "trials": trials,
        "launches": sum(t["launches"] for t in trials),
        "requests": sum(t["sent"] for t in trials),
        "seconds": round(spent, 3),
        "gpu_hours": round(spent * begun.get("gpus", 0) / 3600, 4),
        "session": session,
    }


def numbered(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as it is printed: every reference to a trial is its number `n`, as `parent` is."""
    numbers = {trial["id"]: trial["n"] for trial in document["trials"]}

    def pair(proof: Mapping[str, Any]) -> dict[str, Any]:
        return {**proof, **{key: numbers[proof[key]] for key in ("passing_trial", "failing_trial")}}

    findings = [{**f, "proof": [pair(p) for p in f["proof"]]} for f in document.get("findings", ())]
    lists = {
        key: [{**entry, "trial": numbers[entry["trial"]]} for entry in document.get(key, ())]
        for key in ("set_aside", "stable")
    }
    return {**document, "findings": findings, **lists}
