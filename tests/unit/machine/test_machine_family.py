"""What is told about a family of processes, on processes that the test itself starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repro.errors import MissingProgram
from repro.machine.clock import SystemClock
from repro.machine.detached import must_exist, start_detached
from repro.machine.family import (
    Activity,
    FamilySigns,
    activity,
    end_family,
    find_family,
    hold_output,
    is_output_held,
)
from repro.machine.processes import ProcessRef, describe
from repro.machine.stacks import where_they_wait

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def test_cpu_time_grows_with_work() -> None:
    me = (describe(os.getpid()).ref,)
    before = activity(me)
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    assert activity(me).cpu_s - before.cpu_s >= 0.08
    assert activity([ProcessRef(2**22 + 5, 1.0)]) == Activity()


def test_a_lock_lasts_as_long_as_somebody_inherits_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert not is_output_held(log), "there is no log yet"
    with log.open("xb") as output:
        hold_output(output)
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=output)
    assert is_output_held(log)
    reader = log.open("rb")
    child.communicate(b"\n", timeout=20)
    assert not is_output_held(log), "a reader holds nothing"
    reader.close()


def test_a_family_is_found_by_its_mark_and_ended(tmp_path: Path) -> None:
    signs = FamilySigns("SOME_MARK", "7", tmp_path / "log")
    argv = [sys.executable, "-c", "import time; time.sleep(600)"]
    with signs.output.open("xb") as output:
        hold_output(output)
        mine = start_detached(argv, {"SOME_MARK": "7"}, None, output)
        other = start_detached(argv, {"SOME_MARK": "8"}, None, output)
    try:
        assert os.getsid(mine.pid) == mine.pid
        deadline = time.monotonic() + 20
        while not find_family(signs):  # until the exec, it shows the environment of this test
            assert time.monotonic() < deadline
        (member,) = find_family(signs)
        assert member.pid == mine.pid
        assert str(mine.pid) in where_they_wait([member])[0]
        other.send(9)
        end = end_family(signs, SystemClock(), 5.0)
        assert (end.ended, end.left, end.gone) == ((mine.pid,), (), True)
        assert mine.code() is not None
        mine.send(15)  # to one that has ended: nothing happens
    finally:
        for process in (mine, other):
            process.send(9)
            while process.code() is None:
                time.sleep(0.01)


def test_a_program_is_sought_where_the_child_would(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "serve"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 0\n")
    with pytest.raises(MissingProgram, match="bin/serve"):
        must_exist("bin/serve", {}, tmp_path)  # there, and not executable
    program.chmod(0o755)
    must_exist("bin/serve", {}, tmp_path)
    must_exist("serve", {"PATH": str(program.parent)}, None)
    with pytest.raises(MissingProgram, match="serve"):
        must_exist("serve", {"PATH": "/nowhere"}, None)


def test_what_cannot_be_executed_says_so(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with (tmp_path / "log").open("xb") as output, pytest.raises(MissingProgram, match="could not be started"):
        start_detached([str(broken)], {}, None, output)
