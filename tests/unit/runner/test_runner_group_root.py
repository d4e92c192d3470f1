"""Which rank failed first: a cause of its own before a rank that vanished, both before what only misses a peer."""

from __future__ import annotations

import pytest

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.runner.group_root import RankReport, first_failing, group_failure
from repro.triage import Diagnosis

HEALTHY = Diagnosis(Stage.NONE)


def told(rank: int, family: Family, at: float | None, killed: bool = False, line: str = "why") -> RankReport:
    return RankReport(rank, Diagnosis(Stage.COMM_GROUP, family, 7, line), at, killed)


@pytest.mark.parametrize(
    ("reports", "rank"),
    [
        # Rank 0 hears first that its peer is gone; the peer's own cause is the root.
        ([told(0, Family.GLOO, 1.0), told(1, Family.WEIGHTS_MISSING, 4.0)], 1),
        ([told(0, Family.NCCL, 1.0), told(1, Family.ENGINE_DEAD, 3.0)], 1),
        ([told(0, Family.ENGINE_DEAD, 1.0), told(1, Family.ENGINE_DEAD, 2.0, killed=True)], 1),
        ([told(0, Family.GLOO, 1.0), told(1, Family.OOM_HOST, None)], 1),
        # Both have a cause of their own, or both only miss somebody: the first that told.
        ([told(0, Family.OOM_GPU, 5.0), told(1, Family.CONFIG_INVALID, 4.0)], 1),
        ([told(0, Family.TIMEOUT, 5.0), told(1, Family.GLOO, 6.0)], 0),
        ([told(0, Family.HANG, None), told(1, Family.HANG, None)], 0),
        ([RankReport(0, HEALTHY), told(1, Family.GLOO, 6.0)], 1),
    ],
)
def test_the_root_of_a_group(reports: list[RankReport], rank: int) -> None:
    found = first_failing(reports)
    assert found is not None
    assert found.rank == rank
    backwards = first_failing(list(reversed(reports)))
    assert backwards == found, "the order of the logs does not matter"


def test_the_failure_names_its_rank_and_what_the_others_told() -> None:
    failure = group_failure(
        [told(0, Family.GLOO, 1.0, line="closed by peer\r"), told(1, Family.OOM_GPU, 2.0), told(2, Family.HANG, None)]
    )
    assert failure is not None
    assert failure.family is Family.OOM_GPU
    assert failure.detail.startswith(
        "rank 1 failed first; rank 0 followed (gloo: closed by peer); rank 2 followed (hang"
    )


def test_a_healthy_group_has_no_failure() -> None:
    assert group_failure([RankReport(0, HEALTHY), RankReport(1, HEALTHY)]) is None
