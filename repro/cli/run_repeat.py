"""What N launches of one configuration came to: how often which stage failed, with an interval, and is it the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from repro.domain.failure import Failure
from repro.domain.outcome import Failed, Passed
from repro.domain.proportion import interval, rate_left_possible
from repro.trial.carry import Carried


def repeat_document(carried: Sequence[Carried], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The shape of `repro run --repeat N --json`: `runs` counts the launches, `each` holds their documents.

    `rate` is the share of failures among what could be tested, null where nothing could; `stable` says whether all
    failures are one type with one root, null without any failure.
    """
    failures = _failures(carried)
    tested = _tested(carried)
    low, high = interval(len(failures), tested)
    return {
        "runs": len(runs),
        "tested": tested,
        "failed": len(failures),
        "unresolved": len(carried) - tested,
        "rate": len(failures) / tested if tested else None,
        "interval": [round(low, 4), round(high, 4)],
        "stages": _stages(failures),
        "each": list(runs),
        "stable": len(_sites(failures)) == 1 if failures else None,
    }


def repeat_text(carried: Sequence[Carried]) -> str:
    """The same for people."""
    failures, tested = _failures(carried), _tested(carried)
    low, high = interval(len(failures), tested)
    lines = [f"{len(failures)} of {tested} launches failed (95 % interval {low:.0%} to {high:.0%})"]
    lines += [f"  {row['count']} x {row['stage']}/{row['family']}: {row['root_template']}" for row in _stages(failures)]
    if len(carried) > tested:
        lines.append(f"{len(carried) - tested} more could not be tested and count for nothing")
    if not failures and tested:
        lines.append(f"a fault at a rate below {rate_left_possible(tested):.0%} may still be there")
    elif failures:
        stable = len(_sites(failures)) == 1
        lines.append("the failing point is the same each time" if stable else "the failing point is not stable")
    return "\n".join(lines)


def _failures(carried: Sequence[Carried]) -> list[Failure]:
    return [c.answer.outcome.failure for c in carried if isinstance(c.answer.outcome, Failed)]


def _tested(carried: Sequence[Carried]) -> int:
    return sum(isinstance(c.answer.outcome, (Passed, Failed)) for c in carried)


def _sites(failures: Sequence[Failure]) -> Counter[tuple[str, str, str]]:
    return Counter((f.stage.value, f.family.value, f.root_template) for f in failures)


def _stages(failures: Sequence[Failure]) -> list[dict[str, Any]]:
    """The most frequent first."""
    return [
        {"stage": stage, "family": family, "root_template": template, "count": count}
        for (stage, family, template), count in _sites(failures).most_common()
    ]
