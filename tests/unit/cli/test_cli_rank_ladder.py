"""The rank ladder's parts that start nothing: which rungs there are, and what their results are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.cli.rank_ladder import CHECKS, Rung, checked_outcome, ladder_document, ladder_text, launch_rungs
from repro.domain.command import parse
from repro.domain.failure import Family
from repro.domain.outcome import Failed, Passed, Unresolved
from repro.domain.scene import Scene
from repro.redact.redactor import Redactor
from repro.runner.group_check import Checked

REACH, ALL_REDUCE = CHECKS


def scene(*flags: str) -> Scene:
    command = parse(("vllm", "serve", "m", *flags))
    return Scene("s", (), command, command)


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ((), ["dummy weights, eager", "weights, eager", "graphs"]),
        (("--enforce-eager",), ["dummy weights, eager", "weights, eager"]),
        (("--load-format", "dummy", "--enforce-eager"), ["dummy weights, eager"]),
    ],
)
def test_no_rung_starts_the_same_command_twice(flags: tuple[str, ...], names: list[str]) -> None:
    rungs = launch_rungs(scene(*flags))
    assert [step.name for step, _ in rungs] == names
    assert rungs[-1][1].minimal.argv() == ("vllm", "serve", "m", *flags)


@pytest.mark.parametrize(("backend", "family"), [("nccl", Family.NCCL), ("gloo", Family.GLOO)])
def test_a_failed_all_reduce_is_of_its_backends_family(backend: str, family: Family) -> None:
    outcome = checked_outcome(ALL_REDUCE, Checked(False, "no route", 1, backend), Redactor())
    assert isinstance(outcome, Failed)
    assert outcome.failure.family is family
    assert outcome.failure.detail == f"rank 1 failed first, backend {backend}"


def test_what_could_not_be_tested_rules_nothing_out(tmp_path: Path) -> None:
    untested = checked_outcome(ALL_REDUCE, Checked(None, "no PyTorch there"), Redactor())
    assert isinstance(untested, Unresolved)
    failed = launch_rungs(scene())[0][0]
    outcome = checked_outcome(REACH, Checked(False, "refused", 0), Redactor())
    rungs = [Rung(REACH, Passed(()), 1.0), Rung(ALL_REDUCE, untested, 1.0), Rung(failed, outcome, 2.0)]
    document = ladder_document(rungs, tmp_path)
    assert (document["outcome"], document["failing_rung"]) == ("failed", failed.name)
    assert document["ruled_out"] == [REACH.rules_out]
    text = ladder_text(rungs)
    assert "all_reduce: not tested: no PyTorch there" in text
    assert f"points to: {failed.points_to}" in text
