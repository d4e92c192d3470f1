"""The process's facts, and what may go wrong while reading them: each costs its own field."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.capture import capture, default_collectors
from repro.snapshot.collector import Context
from repro.snapshot.process import ProcessCollector, mapped_libraries

MAPS = """\
7f00-7f01 r-xp 00000000 08:01 1 /usr/local/cuda-13.0/compat/libcuda.so.580.65.06
7f01-7f02 r--p 00000000 08:01 1 /usr/local/cuda-13.0/compat/libcuda.so.580.65.06
7f02-7f03 r-xp 00000000 08:01 2 /opt/venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2
7f03-7f04 r-xp 00000000 08:01 3 /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.1 (deleted)
7f04-7f05 r-xp 00000000 08:01 4 /usr/lib/x86_64-linux-gnu/libc.so.6
7f05-7f06 rw-p 00000000 00:00 0
7f06-7f07 r-xp 00000000 08:01 5 /opt/with a blank/libcublasLt.so.13
"""
ENGINE = "7f00-7f01 r-xp 00000000 08:01 3 /usr/lib/libcudart.so.13\n" + MAPS.splitlines()[2] + "\n"


def write_maps(root: Path, pid: int, text: str) -> None:
    (root / f"proc/{pid}").mkdir(parents=True)
    (root / f"proc/{pid}/maps").write_text(text)


def test_the_whole_family_is_read_and_compat_folders_are_told(tmp_path: Path) -> None:
    write_maps(tmp_path, 1, MAPS)
    write_maps(tmp_path, 2, ENGINE)
    libraries = {each["name"]: each for each in mapped_libraries((1, 2), tmp_path).value}
    assert set(libraries) == {"libcuda", "libnccl", "libnvidia-ml", "libcublasLt", "libcudart"}
    assert libraries["libcuda"]["compat"] is True
    assert libraries["libnccl"]["compat"] is False
    assert libraries["libnccl"]["pids"] == [1, 2]
    assert libraries["libnvidia-ml"]["deleted"] is True
    assert libraries["libnvidia-ml"]["path"].endswith(".so.570.1")
    assert libraries["libcublasLt"]["path"] == "/opt/with a blank/libcublasLt.so.13"


def test_a_worker_that_has_gone_is_named_and_the_rest_read(tmp_path: Path) -> None:
    write_maps(tmp_path, 1, MAPS)
    fact = mapped_libraries((1, 2), tmp_path)
    assert len(fact.value) == 4
    assert "without processes 2" in fact.reason


def test_maps_that_may_not_be_read_cost_only_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal is played."""
    opened = Path.open

    def refusing(self: Path, *args: object, **more: object) -> object:
        if self.name == "maps":
            raise PermissionError(13, "Permission denied", str(self))
        return opened(self, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refusing)
    snapshot = capture(Context(Redactor(), pid=os.getpid()), default_collectors(ask_inside=False))
    assert "permission denied" in snapshot.missing["process.libraries"]
    assert "needs its owner or root" in snapshot.missing["process.libraries"]
    assert snapshot.fact("process.argv").known
    assert snapshot.fact("host.kernel").known


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process with an argument and a variable that are no UTF-8."""
    argv = [os.fsencode(sys.executable), b"-c", b"print('up', flush=True); input()", b"--odd=\xff\xfe\xe4"]
    environment = {**os.environb, b"VLLM_ODD": b"\xff\xfe", b"LD_PRELOAD": b"", b"LD_LIBRARY_PATH": b"/opt/lib"}
    process = subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate(timeout=10)


def collect(pid: int) -> dict[str, Fact]:
    return dict(ProcessCollector().collect(Context(Redactor(), pid=pid)))


def test_odd_bytes_in_argv_and_environment_are_kept(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    facts = collect(sleeper.pid)
    assert set(facts) == set(ProcessCollector.fields)
    assert os.fsencode(facts["argv"].value[-1]) == b"--odd=\xff\xfe\xe4"
    assert os.fsencode(facts["environment"].value["VLLM_ODD"]) == b"\xff\xfe"
    assert facts["library_path"].value == "/opt/lib"
    assert facts["preload"].value is None
    assert facts["libraries"].known


def test_a_vanished_process_ends_in_a_whole_snapshot(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.communicate(timeout=10)
    snapshot = capture(Context(Redactor(), pid=sleeper.pid))
    for collector in default_collectors():
        assert set(snapshot.facts[collector.name]) == set(collector.fields)
    assert "does not exist (any more)" in snapshot.missing["process.argv"]
    assert "not there" in snapshot.missing["process.libraries"]
    assert snapshot.fact("host.memory_total").known
