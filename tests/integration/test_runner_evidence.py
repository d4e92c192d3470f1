"""What is seen from outside of real processes: a kill by the kernel without a word, where a hanging one waits."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from repro.domain.command import Command
from repro.domain.failure import Family
from repro.domain.launch import Launch
from repro.machine.clock import SystemClock
from repro.runner.port import Place
from repro.runner.process import ProcessEngine, ProcessServer, StopTimes
from repro.runner.watch import Deadlines, NotReady, Watch
from repro.triage import Triage

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc and control groups")
CLOCK = SystemClock()
HASTY = StopTimes(interrupt_s=0.5, terminate_s=0.5, family_s=0.2)
LIMIT = 64 << 20
EATS = "print('first', flush=True); held = [bytearray(1 << 20) for _ in range(4096)]"
# The process that dies is a worker; its leader ends by itself, with 0, as vLLM's does.
WORKER_EATS = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {EATS!r}]); print('bye', flush=True)"


class NeverReady:
    def check(self, base_url: str) -> str | None:
        return "/health: refused"


@contextmanager
def memory_group() -> Iterator[Path]:
    """The file that a process writes its pid into to be limited; skips where groups cannot be made (no root)."""
    for base, limit, members in (
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "cgroup.procs"),
        (Path("/sys/fs/cgroup"), "memory.max", "cgroup.procs"),
    ):
        group = base / f"repro-test-{secrets.token_hex(4)}"
        try:
            group.mkdir()
            (group / limit).write_text(str(LIMIT))
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        try:
            yield group / members
        finally:
            deadline = time.monotonic() + 10
            while group.exists() and time.monotonic() < deadline:
                with suppress(OSError):  # until its last process is gone
                    group.rmdir()
        return
    pytest.skip("no memory control group can be made here")


@pytest.mark.parametrize("code", [EATS, WORKER_EATS], ids=["leader", "worker"])
def test_a_kill_for_lack_of_memory_is_told_by_the_control_group(tmp_path: Path, code: str) -> None:
    with memory_group() as members:
        enter = 'echo $$ > "$0"; sleep 0.3; exec "$@"'
        command = Command(("/bin/sh", "-c", enter, str(members), sys.executable, "-c", code), None)
        server = ProcessEngine(CLOCK, stop_times=HASTY).start(
            Launch(command), Place(tmp_path / "servers", tmp_path / "log")
        )
        end = Watch(server, Triage(), CLOCK, Deadlines(total_s=60, stall_s=30, grace_s=1)).await_ready(NeverReady())
        server.stop()
    assert isinstance(end, NotReady)
    assert end.failure.family is Family.OOM_HOST
    evidence = server.exit_evidence()
    assert evidence is not None
    assert evidence.oom_killed is True
    assert (evidence.code, evidence.signal) == ((None, 9) if code is EATS else (0, None))


def hanging(tmp_path: Path) -> ProcessServer:
    command = Command((sys.executable, "-c", "import time\nprint('up', flush=True)\ntime.sleep(600)"), None)
    server = ProcessEngine(CLOCK, stop_times=HASTY).start(
        Launch(command), Place(tmp_path / "servers", tmp_path / "log")
    )
    deadline = time.monotonic() + 20
    while "up" not in server.log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return server


def test_a_hang_is_ended_with_where_it_waits(tmp_path: Path) -> None:
    server = hanging(tmp_path)
    try:
        end = Watch(server, Triage(), CLOCK, Deadlines(total_s=60, stall_s=1)).await_ready(NeverReady())
    finally:
        server.stop()
    assert isinstance(end, NotReady)
    assert end.failure.family is Family.HANG
    assert f"{server.pid} " in end.failure.detail
    assert "sleeping" in end.failure.detail
    assert "nanosleep" in end.failure.detail, "the kernel's word for it"
    assert 50 < end.saved_s < 60


def test_pythons_own_frames_are_told_where_py_spy_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "py-spy"
    program.parent.mkdir()
    program.write_text(
        '#!/bin/sh\n[ "$1 $2" = "dump --pid" ] || exit 2\n'
        'printf \'Process %s: x\\n\\nThread %s (idle): "MainThread"\\n    wait_here (a.py:3)\\n\' "$3" "$3"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    server = hanging(tmp_path)
    try:
        assert any(line.endswith("at wait_here (a.py:3)") for line in server.where_it_waits())
    finally:
        server.stop()
