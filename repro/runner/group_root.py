"""Which rank failed first, over all ranks' logs: the cause is often not in the log that everybody reads.

    rank 0   ... "Connection closed by peer [10.0.0.2]"      what rank 0 tells is that somebody else is gone
    rank 1   ... (nothing: its worker was killed)            the cause is here

A cause of a rank's own goes before a rank that vanished, and both before what only says that a peer is missing; among
equals the one that was told first wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from repro.domain.failure import Failure, Family
from repro.triage import Diagnosis

# What a rank says when another one is gone, does not come or does not answer.
_LOST_PEER = frozenset({Family.GLOO, Family.NCCL, Family.RENDEZVOUS_TIMEOUT, Family.TIMEOUT, Family.HANG})
_VANISHED = frozenset({Family.ENGINE_DEAD, Family.OTHER})


@dataclass(frozen=True)
class RankReport:
    """What one rank tells. `told_at` is when that was first seen (seconds), None if it has told nothing of its own;
    `killed` says that its process ended by a signal that was not ours.
    """

    rank: int
    diagnosis: Diagnosis
    told_at: float | None = None
    killed: bool = False


def first_failing(reports: Sequence[RankReport]) -> RankReport | None:
    """The rank whose failure is the root of all, None if no rank tells of any."""
    failed = [r for r in reports if r.diagnosis.failure() is not None]
    return min(failed, key=_order, default=None)


def group_failure(reports: Sequence[RankReport]) -> Failure | None:
    """The failure of the whole group, its rank named and what the others told of it."""
    root = first_failing(reports)
    failure = root.diagnosis.failure() if root is not None else None
    if root is None or failure is None:
        return None
    others = [_heard(r) for r in reports if r.rank != root.rank]
    words = [f"rank {root.rank} failed first", *others, failure.detail]
    return replace(failure, detail="; ".join(word for word in words if word))


def _order(report: RankReport) -> tuple[int, float, int]:
    family = report.diagnosis.family
    if report.killed or family is Family.OOM_HOST:
        weight = 0
    elif family in _LOST_PEER:
        weight = 2
    else:
        weight = 1 if family in _VANISHED else 0
    return weight, report.told_at if report.told_at is not None else float("inf"), report.rank


def _heard(report: RankReport) -> str:
    failure = report.diagnosis.failure()
    if failure is None:
        return f"rank {report.rank} tells of no failure"
    line = f": {failure.root_line.strip()[:200]}" if failure.root_line else ""
    return f"rank {report.rank} followed ({failure.family}{line})"
