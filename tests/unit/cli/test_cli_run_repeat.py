"""What N launches came to, from the outcomes alone."""

from __future__ import annotations

from repro.cli.run_repeat import repeat_document, repeat_text
from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.stage import Stage
from repro.domain.trial import Answer
from repro.trial.carry import Carried

OOM = Failed(Failure(Stage.ENGINE_INIT, Family.OOM_GPU, root_template="CUDA out of memory"))
NCCL = Failed(Failure(Stage.COMM_GROUP, Family.NCCL, root_template="NCCL error"))


def carried(*outcomes: Outcome) -> list[Carried]:
    return [Carried(Answer(str(n), outcome), None) for n, outcome in enumerate(outcomes)]


def test_what_could_not_be_tested_counts_for_nothing() -> None:
    document = repeat_document(carried(OOM, Passed(()), Unresolved("Docker is down"), OOM), [])
    assert (document["tested"], document["failed"], document["unresolved"]) == (3, 2, 1)
    assert round(document["rate"], 3) == 0.667
    assert document["interval"][0] < 0.667 < document["interval"][1]
    assert document["stable"] is True
    assert document["stages"] == [
        {"stage": "engine_init", "family": "oom_gpu", "root_template": "CUDA out of memory", "count": 2}
    ]


def test_a_failing_point_that_moves_is_not_stable() -> None:
    outcomes = carried(NCCL, OOM, OOM)
    document = repeat_document(outcomes, [])
    assert document["stable"] is False
    assert [row["count"] for row in document["stages"]] == [2, 1]
    assert "not stable" in repeat_text(outcomes)
    assert "3 of 3 launches failed" in repeat_text(outcomes)


def test_nothing_that_could_be_tested_has_no_rate() -> None:
    outcomes = carried(Unresolved("no"))
    document = repeat_document(outcomes, [])
    assert (document["rate"], document["stable"], document["interval"]) == (None, None, [0.0, 1.0])
    assert "could not be tested" in repeat_text(outcomes)


def test_passes_say_which_rate_they_leave_possible() -> None:
    assert "below 22%" in repeat_text(carried(*[Passed(())] * 12))
