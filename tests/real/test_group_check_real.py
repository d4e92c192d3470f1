"""The all-reduce of the rank ladder, with the real vLLM's own Python and PyTorch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro.runner.group_check import ALL_REDUCE, REACH, Checked, Rank, check_group
from repro.snapshot.inside import host_interpreter


@pytest.mark.real_full
def test_two_ranks_add_up_and_an_interface_that_is_not_there_is_named(vllm: Path) -> None:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    python = host_interpreter((str(vllm),), environment)
    assert check_group(REACH, python, [Rank((), environment)] * 2, "127.0.0.1") == Checked(True)
    checked = check_group(ALL_REDUCE, python, [Rank((), environment)] * 2, "127.0.0.1")
    assert checked == Checked(True, backend="gloo")
    wrong = {**environment, "GLOO_SOCKET_IFNAME": "nowhere0"}
    broken = check_group(ALL_REDUCE, python, [Rank((), wrong)] * 2, "127.0.0.1")
    assert (broken.passed, broken.backend) == (False, "gloo")
    assert "nowhere0" in broken.said
