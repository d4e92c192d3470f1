"""Domain values to JSON and back, for the journal. What one version has written every later version can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import assert_never

from repro.domain.failure import Failure, Family, Signature
from repro.domain.finding import Bracket, Finding, SearchResult
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.stage import Stage
from repro.domain.trial import Answer, Ask, Cost, ServerFacts, Trial
from repro.domain.variable import Configuration, Value

Json = dict[str, Any]


def value_to_json(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


def value_from_json(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value


def trial_to_json(trial: Trial) -> Json:
    return {
        "id": trial.id,
        "parent": trial.parent,
        "purpose": trial.purpose.value,
        "fresh": trial.fresh.value,
        "rounds": trial.rounds,
        "allowed": trial.allowed,
        "stop_after": trial.stop_after.value if trial.stop_after else None,
        "values": {name: value_to_json(value) for name, value in trial.configuration.values},
    }


def ask_to_json(ask: Ask) -> Json:
    return {"reason": ask.reason, "trials": [trial_to_json(t) for t in ask.trials]}


def configuration_from_json(values: Mapping[str, Any]) -> Configuration:
    return Configuration.of((name, value_from_json(value)) for name, value in values.items())


def failure_to_json(failure: Failure) -> Json:
    return {
        "stage": failure.stage.value,
        "family": failure.family.value,
        "root_line_no": failure.root_line_no,
        "root_line": failure.root_line,
        "root_template": failure.root_template,
        "consequences": list(failure.consequences),
        "reached": [s.value for s in failure.reached],
        "vllm_version": failure.vllm_version,
        "confidence": failure.confidence,
        "detail": failure.detail,
    }


def failure_from_json(data: Mapping[str, Any]) -> Failure:
    return Failure(
        stage=Stage(data["stage"]),
        family=Family(data["family"]),
        root_line=data["root_line"],
        root_line_no=data["root_line_no"],
        root_template=data["root_template"],
        consequences=tuple(data["consequences"]),
        reached=tuple(Stage(s) for s in data["reached"]),
        vllm_version=data["vllm_version"],
        confidence=data["confidence"],
        detail=data["detail"],
    )


def outcome_to_json(outcome: Outcome) -> Json:
    match outcome:
        case Passed(reached):
            return {"outcome": "passed", "reached": [s.value for s in reached]}
        case Failed(failure):
            return {"outcome": "failed", "failure": failure_to_json(failure)}
        case Unresolved(reason, again):
            return {"outcome": "unresolved", "reason": reason, "again": again}
        case _:
            assert_never(outcome)


def outcome_from_json(data: Mapping[str, Any]) -> Outcome:
    match data["outcome"]:
        case "passed":
            return Passed(tuple(Stage(s) for s in data["reached"]))
        case "failed":
            return Failed(failure_from_json(data["failure"]))
        case "unresolved":
            return Unresolved(data["reason"], data.get("again", True))
        case other:
            raise ValueError(f"unknown outcome {other!r}")


def cost_to_json(cost: Cost) -> Json:
    return {"launches": cost.launches, "seconds": round(cost.seconds, 3)}


def cost_from_json(data: Mapping[str, Any]) -> Cost:
    return Cost(data["launches"], data["seconds"])


def answer_to_json(answer: Answer) -> Json:
    server = answer.server
    return {
        "trial": answer.trial_id,
        **outcome_to_json(answer.outcome),
        "missed": answer.missed,
        "sent": answer.sent,
        **cost_to_json(answer.cost),
        "server": None
        if server is None
        else {
            "id": server.id,
            "launch": server.launch,
            "served_before": server.served_before,
            "alive": server.alive,
        },
    }


def answer_from_json(data: Mapping[str, Any]) -> Answer:
    server = data["server"]
    return Answer(
        trial_id=data["trial"],
        outcome=outcome_from_json(data),
        missed=data["missed"],
        sent=data["sent"],
        cost=cost_from_json(data),
        server=None
        if server is None
        else ServerFacts(server["id"], server["launch"], server["served_before"], server["alive"]),
    )


def signature_to_json(signature: Signature) -> Json:
    shape = {"template": signature.template} if signature.template else {}
    return {"stage": signature.stage.value, "family": signature.family.value, **shape}


def _bracket_to_json(bracket: Bracket) -> Json:
    return {
        "passing": value_to_json(bracket.passing),
        "failing": value_to_json(bracket.failing),
        "reason": bracket.reason,
        "exceptions": [value_to_json(v) for v in bracket.exceptions],
        "open": bracket.open,
    }


def _finding_to_json(finding: Finding) -> Json:
    return {
        **signature_to_json(finding.signature),
        "proven": finding.proven,
        "alone": finding.alone,
        "variables": [
            {"name": m.variable, "kind": m.kind.value, **_bracket_to_json(m.bracket)} for m in finding.members
        ],
        "failed": {"count": finding.failed.count, "of": finding.failed.of},
        "passed": {"count": finding.passed.count, "of": finding.passed.of},
        "proof": [
            {
                "variable": p.variable,
                "passing_trial": p.passing_trial,
                "failing_trial": p.failing_trial,
                "holds": p.holds,
                "masked": p.masked,
            }
            for p in finding.proof
        ],
    }


def result_to_json(result: SearchResult) -> Json:
    """The search's part of `bisect --json`; the trials and costs come from the journal."""
    return {
        "outcome": result.kind.value,
        "target": [signature_to_json(s) for s in result.target],
        "findings": [_finding_to_json(f) for f in result.findings],
        "set_aside": [
            {"variable": s.variable, **signature_to_json(s.signature), "trial": s.trial, "reason": s.reason}
            for s in result.set_aside
        ],
        "stable": [{"tag": tag, "trial": trial} for tag, trial in result.stable],
        "note": result.note,
        "still_possible": list(result.still_possible),
    }
