"""A program runs to its end or is killed with all it started; what it printed is never lost."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
import pytest

from repro.errors import MissingProgram
from repro.machine import subprocesses
from repro.machine.subprocesses import run

PYTHON = sys.executable


def test_output_code_input_environment_and_folder(tmp_path: Path) -> None:
    code = "import os,sys; print(sys.stdin.read(), os.environ['A'], os.getcwd()); sys.stderr.write('err'); sys.exit(3)"
    done = run([PYTHON, "-c", code], 30, env={"A": "b"}, cwd=tmp_path, input="in")
    assert done.code == 3
    assert not done.succeeded
    assert not done.timed_out
    assert done.stdout == f"in b {tmp_path.resolve()}\n"
    assert done.stderr == "err"


def test_arguments_never_meet_a_shell() -> None:
    assert run([PYTHON, "-c", "import sys; print(sys.argv[1])", "$(id); `id` > x"], 30).stdout == "$(id); `id` > x\n"


def test_a_timeout_keeps_the_output_and_kills_the_whole_group() -> None:
    # A shell, since it starts within milliseconds on a busy machine too.
    done = run(["/bin/sh", "-c", "sleep 300 & echo $!; echo half >&2; wait"], 1)
    assert done.timed_out
    assert done.code is None
    assert done.stderr == "half\n"
    assert _ends(int(done.stdout))


def test_a_helper_that_left_the_group_does_not_hold_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocesses, "_DRAIN_SECONDS", 0.2)
    leave = "import os,time; os.setsid(); print(os.getpid(), flush=True); time.sleep(300)"
    done = run(["/bin/sh", "-c", '"$0" -SEc "$1" & wait', PYTHON, leave], 2)
    escaped = int(done.stdout)
    try:
        assert done.timed_out
        assert done.seconds < 60
        assert not _ends(escaped, seconds=0)
    finally:
        psutil.Process(escaped).kill()


def test_a_signal_shows_as_a_negative_code() -> None:
    assert run([PYTHON, "-c", "import os; os.kill(os.getpid(), 9)"], 30).code == -9


def test_a_missing_program_is_named() -> None:
    with pytest.raises(MissingProgram, match="no-such-program-at-all"):
        run(["no-such-program-at-all", "x"], 5)


def test_a_file_that_is_not_executable_is_named(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo")
    with pytest.raises(MissingProgram, match="script"):
        run([str(tmp_path / "script")], 5)


def test_a_missing_folder_is_not_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        run([PYTHON, "-c", ""], 5, cwd=tmp_path / "absent")


def _ends(pid: int, seconds: float = 10.0) -> bool:
    """Whether the process is gone, at the latest after a while: the system needs a moment to carry out a kill."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        if time.monotonic() >= deadline:
            return False
