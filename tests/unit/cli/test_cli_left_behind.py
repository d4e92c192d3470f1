"""What is said about servers of a killed repro, and which of its logs are masked."""

from __future__ import annotations

import fcntl
import gzip
from pathlib import Path

import pytest

from repro.cli.left_behind import mask_left_logs, swept_lines
from repro.runner.sweep import Swept
from repro.session.workspace import Workspace

SECRET = "hf_" + "Zq8Lw3Xr5Tn7Vb2Mc9Kd4Jf6Hg1Ps0Ya"


@pytest.mark.parametrize(
    ("swept", "words"),
    [
        (Swept("a1", ()), []),
        (Swept("a1", (7, 8)), ["stopped server a1", "(pids 7, 8)"]),
        (Swept("a1", (), containers=("c1",)), ["stopped server a1", "(containers c1)"]),
        (Swept("a1", (7,), left=(8,), gone=False), ["pids 7", "does not end (pids 8)", "GPU memory", "by hand"]),
        (Swept("a1", (), gone=False, problem="no daemon"), ["may still run: no daemon", "`repro clean`"]),
        (Swept("a1", (), gone=False), ["holds its log open"]),
    ],
)
def test_what_became_of_a_server_is_said(swept: Swept, words: list[str]) -> None:
    said = "\n".join(swept_lines(swept))
    assert bool(said) == bool(words)
    for word in words:
        assert word in said


def raw_log(workspace: Workspace, kind: str) -> Path:
    folder = workspace.root / kind / "1" / "logs"
    folder.mkdir(parents=True)
    log = folder / "server-001.log"
    log.write_text(f"one\nMY_OWN={SECRET}\n")
    return log


def test_raw_logs_of_sessions_and_runs_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    workspace = Workspace.open(tmp_path)
    logs = [raw_log(workspace, "sessions"), raw_log(workspace, "runs")]
    mask_left_logs(workspace)
    for log in logs:
        assert not log.exists()
        kept = gzip.decompress(log.with_name("server-001.log.gz").read_bytes()).decode()
        assert kept.startswith("one\n")
        assert SECRET not in kept


def test_a_log_that_a_server_still_writes_is_left_alone(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path)
    log = raw_log(workspace, "runs")
    with log.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        mask_left_logs(workspace)
        assert log.exists()
    mask_left_logs(workspace)
    assert not log.exists()
