"""Permissions that are really refused: a process of another user, looked at without the privilege to do so."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534

pytestmark = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="needs root, to start a process of another user, and setpriv (util-linux)",
)


@pytest.fixture
def foreign() -> Iterator[int]:
    """A process of the user nobody."""
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "cat"]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"HF_TOKEN": "not-for-others"})
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"up\n")
    process.stdin.flush()
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate(timeout=10)


def snapshot(folder: Path, pid: int, *before: str) -> dict[str, Any]:
    (folder / ".repro").mkdir(exist_ok=True)
    done = subprocess.run(
        [*before, sys.executable, "-m", "repro", "snapshot", "--json", "--pid", str(pid)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_what_may_not_be_read_names_the_privilege_and_the_rest_is_there(tmp_path: Path, foreign: int) -> None:
    document = snapshot(tmp_path, foreign, "setpriv", "--bounding-set=-all", "--inh-caps=-all", "--")
    for name in ("process.libraries", "process.environment", "process.cwd"):
        assert "permission denied" in document["missing"][name], name
        assert "root" in document["missing"][name], name
    assert document["facts"]["process"]["argv"]["value"] == ["cat"]
    assert document["facts"]["host"]["kernel"]["value"]
    assert "process.argv" not in document["missing"]


def test_root_reads_it_all_and_runs_nothing_of_others_as_root(tmp_path: Path, foreign: int) -> None:
    document = snapshot(tmp_path, foreign)
    assert document["facts"]["process"]["libraries"]["label"] == "measured"
    assert document["facts"]["process"]["environment"]["value"]["HF_TOKEN"].startswith("***masked:")
    assert "not a script" in document["missing"]["inside.vllm"]
