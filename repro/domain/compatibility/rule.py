"""How a rule is made: it looks at every node, and what it says of the worst of them is its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from repro.domain.compatibility.chain import Link, Place, RuleOutcome, RuleResult, worst
from repro.domain.compatibility.node import Node
from repro.domain.fingerprint import Fact, Label
from repro.domain.release import at_least

HOLDS, BROKEN, UNKNOWN = RuleOutcome.HOLDS, RuleOutcome.BROKEN, RuleOutcome.UNKNOWN


@dataclass(frozen=True)
class Finding:
    """What a rule sees on one node."""

    outcome: RuleOutcome
    seen: str
    evidence: Label = Label.MEASURED
    places: dict[Place, str | None] = field(default_factory=dict)


def unknown(what: str, fact: Fact) -> Finding:
    """The finding of a rule whose fact is missing."""
    return Finding(UNKNOWN, f"{what}: not known ({fact.reason or 'not collected'})", Label.UNAVAILABLE)


def held(holds: bool, seen: str, fact: Fact) -> Finding:
    """The finding of a rule whose fact is there."""
    return Finding(HOLDS if holds else BROKEN, seen, fact.label)


def compared(fact: Fact, minimum: str, seen: str) -> Finding:
    """The finding of a rule that asks for a version; a number that cannot be compared is no answer."""
    enough = at_least(str(fact.value), minimum)
    if enough is None:
        return Finding(UNKNOWN, f"{seen}, a number that cannot be compared with {minimum}", Label.UNAVAILABLE)
    return held(enough, seen, fact)


def on_every_node(
    nodes: Sequence[Node],
    look: Callable[[Node], Finding],
    *,
    id: str,
    link: Link,
    wanted: str,
    mend: str,
    learn: str,
    advice: bool = False,
    unknown_warns: bool = False,
) -> RuleResult:
    """One answer from all nodes. `mend` is what to do where it is broken, `learn` how to come to know it.

    `unknown_warns` is for a rule that adds to another one which already demands the fact: not knowing is then no more
    than a warning, and what it finds broken still breaks the chain.
    """
    findings = [(node, look(node)) for node in nodes]
    outcome = worst([finding.outcome for _, finding in findings])
    deciding = [(node, finding) for node, finding in findings if finding.outcome is outcome]
    return RuleResult(
        id=id,
        link=link,
        outcome=outcome,
        evidence=deciding[0][1].evidence if deciding and outcome is not UNKNOWN else Label.UNAVAILABLE,
        seen=_seen(deciding, many=len(nodes) > 1) if deciding else "no node's facts are there",
        wanted=wanted,
        mend={HOLDS: "", BROKEN: mend, UNKNOWN: learn}[outcome],
        places=deciding[0][1].places if deciding else {},
        advice=advice or (unknown_warns and outcome is UNKNOWN),
    )


def _seen(findings: Sequence[tuple[Node, Finding]], *, many: bool) -> str:
    """What was seen; several nodes are named, and those that say the same are put together."""
    if not many:
        return findings[0][1].seen
    names: dict[str, list[str]] = {}
    for node, finding in findings:
        names.setdefault(finding.seen, []).append(node.name)
    return "; ".join(f"{', '.join(of)}: {seen}" for seen, of in names.items())
