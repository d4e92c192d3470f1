"""What a diagnostic re-run says of the failure before, and to whom it is offered."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from repro.cli.diagnose import comparison, new_warnings, next_flags, offer, worth_diagnosing
from repro.domain.command import parse
from repro.domain.diagnostics import SETTINGS, diagnosed
from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Passed, Unresolved
from repro.domain.scene import Scene
from repro.domain.stage import Stage
from repro.redact.redactor import Redactor


def failure(family: Family = Family.NCCL, root: str = "unhandled system error", confidence: float = 0.9) -> Failure:
    return Failure(Stage.COMM_GROUP, family, root, 7, root_template=root, confidence=confidence)


@pytest.mark.parametrize(
    ("seen", "worth"),
    [
        (failure(), True),
        (failure(Family.ENGINE_DEAD), True),
        (failure(Family.HANG), True),
        (failure(Family.OTHER), True),
        (failure(Family.SHM), False),
        (failure(Family.SHM, confidence=0.2), True),
    ],
)
def test_offered_where_the_log_may_not_hold_the_cause(seen: Failure, worth: bool) -> None:
    assert worth_diagnosing(seen) is worth


def test_the_comparison_tells_the_same_an_earlier_root_and_another_type_apart() -> None:
    same = comparison(failure(), Failed(failure()))
    moved = comparison(failure(), Failed(failure(root="no socket interface found")))
    other = comparison(failure(), Failed(failure(Family.SHM, "No space left on device")))
    assert "same root line" in same
    assert "moves its root line; it was: unhandled system error" in moved
    assert "another error type than before (comm_group/nccl" in other


def test_a_pass_or_a_doubt_is_no_proof() -> None:
    assert "no proof" in comparison(failure(), Passed(()))
    assert "nothing is compared" in comparison(failure(), Unresolved("the GPU is taken"))
    assert "nothing to compare with" in comparison(None, Failed(failure()))


def test_only_warnings_that_the_earlier_log_did_not_hold_are_new(tmp_path: Path) -> None:
    before, now = tmp_path / "before.gz", tmp_path / "now.gz"
    before.write_bytes(gzip.compress(b"ERROR rank 0 failed\nall well\n"))
    now.write_bytes(
        gzip.compress(b"ERROR rank 1 failed\nn0:1 NCCL WARN no such device\nn0:2 NCCL WARN no such device\n")
    )
    assert new_warnings(before, now) == ["line 2: n0:1 NCCL WARN no such device"]
    assert new_warnings(before, None) == []


def test_the_offer_is_the_users_own_command_once() -> None:
    words = ["run", "--repeat", "3", "--json", "--recipe", "own.toml", "--", "vllm", "serve", "m", "--json"]
    assert offer(words, "--diagnose", Redactor()) == "repro run --diagnose --recipe own.toml -- vllm serve m --json"


def test_the_offer_holds_no_secret() -> None:
    said = offer(["run", "--", "vllm", "serve", "m", "--api-key", "sk-live-2f8a91c7d3"], "--diagnose", Redactor())
    assert "2f8a91c7d3" not in said


def test_both_ends_get_the_settings_and_the_user_s_own_level_gives_way() -> None:
    command = parse(("NCCL_DEBUG=WARN", "vllm", "serve", "m"))
    scene = diagnosed(Scene("s", (), command, command))
    for end in (scene.minimal, scene.production):
        assert {setting.name: setting.value for setting in SETTINGS} == dict(end.environment)


def test_the_ladder_comes_first_where_the_ranks_do_not_meet() -> None:
    assert next_flags(failure()) == ("--rank-ladder", "--diagnose")
    assert next_flags(failure(Family.SHM)) == ("--rank-ladder",)
