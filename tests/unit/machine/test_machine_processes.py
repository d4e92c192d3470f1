"""Facts of real processes, and endings that never touch another process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil
import pytest

from repro.machine.clock import SystemClock
from repro.machine.processes import (
    ProcessRef,
    describe,
    end_group,
    find_vllm,
    holder_of_port,
    looks_like_vllm_server,
    same_process,
    with_environment_mark,
)

SLEEP = "import time; print('up', flush=True); time.sleep(300)"
STUBBORN = (
    "import signal,time; signal.signal(2, signal.SIG_IGN); signal.signal(15, signal.SIG_IGN);"
    "print('up', flush=True)\nwhile True: time.sleep(300)"
)
LISTEN = (
    "import socket,time; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen();"
    "print(s.getsockname()[1], flush=True); time.sleep(300)"
)
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start_one(code: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.wait(10)
        if process.stdout:
            process.stdout.close()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_describe_a_running_process(start: Start) -> None:
    process = start(LISTEN, MY_VARIABLE="here")
    port = int(first_line(process))
    facts = describe(process.pid)
    assert facts.alive
    assert facts.argv == (sys.executable, "-c", LISTEN)
    assert facts.environment is not None
    assert facts.environment["MY_VARIABLE"] == "here"
    assert facts.cwd == os.getcwd()  # noqa: PTH109 - compared with what the system says, not with a resolved path
    assert facts.parent == os.getpid()
    assert facts.ports == (port,)
    assert facts.children == ()
    assert not facts.unreadable
    holder = holder_of_port(port)
    assert holder is not None
    assert holder.pid == process.pid
    assert holder.argv == facts.argv


def test_describe_a_vanished_process(start: Start) -> None:
    process = start("")
    process.wait(30)
    facts = describe(process.pid)
    assert not facts.alive
    assert facts.argv is None
    assert "does not exist" in facts.unreadable["argv"]


def test_a_denied_field_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: psutil.Process) -> dict[str, str]:
        raise psutil.AccessDenied(self.pid)

    monkeypatch.setattr(psutil.Process, "environ", denied)
    facts = describe(os.getpid())
    assert facts.environment is None
    assert "permission denied" in facts.unreadable["environment"]
    assert facts.argv


def test_a_free_port_has_no_holder() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert holder_of_port(port) is None


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["vllm", "serve", "m"], True),
        (["/opt/venv/bin/python3.12", "/opt/venv/bin/vllm", "serve", "m", "--port", "1"], True),
        (["python3", "-X", "dev", "-u", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"], True),
        (["python", "-m", "vllm.entrypoints.cli.main", "serve", "m"], True),
        (["python", "-m", "vllm.entrypoints.cli.main", "bench", "serve"], False),
        (["vllm", "bench", "serve"], False),
        (["bash", "-c", "vllm serve m"], False),
        (["repro", "run", "--", "vllm", "serve", "m"], False),
        (["grep", "vllm", "serve"], False),
        (["VLLM::EngineCore"], False),
        ([], False),
    ],
)
def test_what_looks_like_a_vllm_server(argv: list[str], expected: bool) -> None:
    assert looks_like_vllm_server(argv) is expected


def test_find_vllm_lists_the_server_and_not_its_workers(tmp_path_factory: pytest.TempPathFactory) -> None:
    program = tmp_path_factory.mktemp("bin") / "vllm"
    program.write_text(
        "import os,time\nif os.fork() == 0:\n    time.sleep(300)\nprint(os.getpid(), flush=True)\ntime.sleep(300)\n"
    )
    process = subprocess.Popen([sys.executable, str(program), "serve", "some/model"], stdout=subprocess.PIPE, text=True)
    try:
        first_line(process)
        workers = psutil.Process(process.pid).children()
        found = [facts.pid for facts in find_vllm()]
        assert process.pid in found
        assert not {worker.pid for worker in workers} & set(found)
        assert len(workers) == 1
    finally:
        for child in psutil.Process(process.pid).children():
            child.kill()
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def test_processes_are_found_by_their_mark_with_their_descendants(start: Start) -> None:
    mark = uuid.uuid4().hex
    child = f"import subprocess,sys,time; p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}], env={{}}); "
    marked = start(child + "time.sleep(300)", REPRO_TEST_MARK=mark)
    start(SLEEP, REPRO_TEST_MARK="another")
    while not psutil.Process(marked.pid).children():
        assert marked.poll() is None
    facts = with_environment_mark("REPRO_TEST_MARK", mark)
    assert facts[0].pid == marked.pid
    assert len(facts) == 2
    assert facts[1].parent == marked.pid
    assert end_group([f.ref for f in facts], SystemClock(), interrupt_seconds=5) == ()
    assert with_environment_mark("REPRO_TEST_MARK", mark) == ()


def test_end_group_goes_on_to_kill(start: Start) -> None:
    process = start(STUBBORN)
    assert first_line(process) == "up"
    ref = describe(process.pid).ref
    left = end_group([ref], SystemClock(), interrupt_seconds=0.2, terminate_seconds=0.2, kill_seconds=10)
    assert left == ()
    assert process.wait(10) == -signal.SIGKILL


def test_end_group_stops_at_the_first_signal_that_helps(start: Start) -> None:
    process = start("import time\ntry:\n    print('up', flush=True); time.sleep(300)\nexcept KeyboardInterrupt: pass")
    assert first_line(process) == "up"
    assert end_group([describe(process.pid).ref], SystemClock(), interrupt_seconds=10) == ()
    assert process.wait(10) == 0


def test_another_process_with_the_same_pid_is_never_touched(start: Start) -> None:
    process = start(SLEEP)
    first_line(process)
    ref = describe(process.pid).ref
    assert same_process(ref.pid, ref.started)
    earlier = replace(ref, started=ref.started - 3600)
    assert not same_process(earlier.pid, earlier.started)
    assert end_group([earlier], SystemClock()) == ()
    assert process.poll() is None


def test_a_zombie_does_not_run(start: Start) -> None:
    process = start("")
    facts = describe(process.pid)
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert not same_process(process.pid, facts.started or 0.0)
    assert end_group([ProcessRef(process.pid, facts.started or 0.0)], SystemClock()) == ()
