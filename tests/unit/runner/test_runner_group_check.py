"""Ranks of a group check: judged by what their programs came to, and really connected to each other."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from repro.machine.subprocesses import Completed
from repro.runner.group_check import REACH, Checked, Rank, check_group, judged
from repro.runner.group_program import MARK


def ended(seconds: float, *told: dict[str, object], code: int | None = 0, stderr: str = "") -> Completed:
    out = "".join(MARK + json.dumps(each) + "\n" for each in told)
    return Completed(("python",), code, out, stderr, False, seconds)


def test_three_ranks_meet() -> None:
    ranks = [Rank((), {"PATH": os.environ["PATH"]})] * 3
    assert check_group(REACH, Path(sys.executable), ranks, "127.0.0.1") == Checked(True)


def test_an_address_that_is_not_here_is_told_by_the_rank_that_listens() -> None:
    ranks = [Rank((), {"PATH": os.environ["PATH"]})]
    checked = check_group(REACH, Path(sys.executable), ranks, "192.0.2.1")
    assert checked.passed is False
    assert checked.rank == 0
    assert "OSError" in checked.said


def test_the_rank_that_failed_soonest_is_the_first() -> None:
    waited = ended(30, {"backend": "gloo"}, {"ok": False, "error": "timed out"})
    broke = ended(1, {"backend": "gloo"}, {"ok": False, "error": "RuntimeError: no device"})
    assert judged([waited, broke]) == Checked(False, "RuntimeError: no device", 1, "gloo")


def test_a_rank_that_ended_without_a_word_is_a_failure() -> None:
    checked = judged([ended(9, {"backend": "nccl"}, code=-14, stderr="x\nlast words")])
    assert (checked.passed, checked.backend) == (False, "nccl")
    assert "code -14" in checked.said
    assert "last words" in checked.said


def test_no_pytorch_is_no_failure() -> None:
    assert judged([ended(1, {"ok": None, "error": "no torch"}), ended(1, {"ok": False})]).passed is None
