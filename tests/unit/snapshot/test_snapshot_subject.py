"""What a snapshot is of: named, found, gone, or one of several."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from repro.cli import snapshot_subject
from repro.cli.snapshot_subject import Subject, chooser, find_subject, refuse
from repro.errors import DockerUnavailable, UsageError
from repro.machine.docker_port import Docker
from repro.machine.processes import ProcessFacts
from tests.fakes.clock import FakeClock
from tests.fakes.docker import FakeDocker, container_facts

NOW = FakeClock().now()
VLLM = ("vllm", "serve", "m")
ENDED: dict[str, Any] = {"Status": "exited", "Running": False, "ExitCode": 1}
JUST = "2027-01-15T07:59:00Z"
GONE = {"ID": "9" * 64, "Attributes": {"name": "prod", "image": "vllm/vllm-openai:v1", "exitCode": "137"}}


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No vLLM process of this machine is meant."""
    monkeypatch.setattr(snapshot_subject, "find_vllm", tuple)


def find(
    docker: Docker | None = None,
    *,
    pid: int | None = None,
    container: str | None = None,
    log: Path | None = None,
    choose: Callable[[Sequence[str]], int] = refuse,
) -> Subject:
    def connect() -> Docker:
        if docker is None:
            raise DockerUnavailable("Docker does not answer: no socket", "It takes root or the group docker.")
        return docker

    search = log is None
    return find_subject(pid, container, log, search=search, connect=connect, choose=choose, clock=FakeClock())


def test_a_host_with_nothing_is_a_subject_too() -> None:
    subject = find(FakeDocker())
    assert subject.said == "this host (no vLLM runs here)"
    assert (subject.pid, subject.container, subject.log) == (None, None, None)
    assert "takes root or the group docker" in find(None).container_hint


def test_the_one_container_is_taken_running_or_just_ended() -> None:
    running = container_facts("1" * 64, "prod", VLLM)
    assert find(FakeDocker([running])).said == "container prod (running)"
    ended = container_facts("1" * 64, "prod", VLLM, FinishedAt=JUST, **ENDED)
    subject = find(FakeDocker([ended], logs={"1" * 64: b"hello\n"}))
    assert subject.said == "container prod (exited with 1)"
    assert subject.log is not None
    assert b"".join(subject.log.chunks()) == b"hello\n"


def test_what_ended_long_ago_or_is_no_vllm_is_not_meant() -> None:
    old = container_facts("1" * 64, "old", VLLM, FinishedAt="2026-12-01T00:00:00Z", **ENDED)
    other = container_facts("2" * 64, "db", ("postgres",), "localhost:5000/postgres:17")
    by_image = container_facts("3" * 64, "site", ("/start.sh",), "localhost:5000/team/vllm-site:1")
    assert find(FakeDocker([old, other])).container is None
    assert find(FakeDocker([old, other, by_image])).said.startswith("container site")


def test_several_are_listed_off_a_terminal_and_asked_for_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    docker = FakeDocker([container_facts("1" * 64, "one", VLLM), container_facts("2" * 64, "two", VLLM)])
    process = ProcessFacts(os.getpid(), 1.0, (*VLLM, "--api-key", "the-served-key"))
    monkeypatch.setattr(snapshot_subject, "find_vllm", lambda: (process,))
    with pytest.raises(UsageError, match="3 vLLM servers are here") as told:
        find(docker)
    assert told.value.exit_code == 2
    for word in ("--container one", "--container two", f"--pid {os.getpid()}"):
        assert word in told.value.message
    assert "the-served-key" not in told.value.message
    assert find(docker, choose=lambda shown: len(shown) - 1).said == f"process {os.getpid()}"
    assert find(docker, choose=lambda _: 1).said == "container two (running)"
    assert chooser(interactive=False) is refuse
    with CliRunner().isolation(input="9\n2\n"):
        assert snapshot_subject.ask(["--pid 1", "--pid 2"]) == 1, "nine are not there, so it asks again"


def test_a_removed_container_is_named_with_where_its_log_may_be() -> None:
    events = [{"Action": "die", "Actor": GONE, "time": NOW - 9}, {"Action": "destroy", "Actor": GONE, "time": NOW - 8}]
    subject = find(FakeDocker(events=events), container="prod")
    assert subject.said == "container prod (removed)"
    assert "was removed after exit code 137" in subject.container_hint
    assert "journalctl CONTAINER_NAME=prod" in subject.log_hint


def test_a_container_that_nobody_knows_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="no container 'pord'") as told:
        find(FakeDocker([container_facts("1" * 64, "prod", VLLM)]), container="pord")
    assert "prod (vllm/vllm-openai:v0.29.0)" in told.value.hint


def test_a_stopped_daemon_still_gives_a_subject() -> None:
    subject = find(None, container="prod")
    assert "Docker does not answer" in subject.said
    assert "takes root or the group docker" in subject.container_hint


def test_a_restarted_container_and_one_without_a_log_are_told() -> None:
    again = container_facts("1" * 64, "prod", VLLM, RestartCount=3)
    assert "restarted it 3 times" in find(FakeDocker([again]), container="prod").log_hint
    again["RestartCount"] = 0
    again["HostConfig"]["LogConfig"]["Config"] = {"max-size": "10m", "max-file": "3"}
    assert "max-size 10m, 3 kept" in find(FakeDocker([again]), container="prod").log_hint
    again["HostConfig"]["LogConfig"]["Type"] = "none"
    silent = find(FakeDocker([again]), container="prod")
    assert silent.log is None
    assert "log driver `none`" in silent.log_hint


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "own.log").open("wb") as log:
        program = [sys.executable, "-c", "print('up', flush=True); input()"]
        process = subprocess.Popen(program, stdout=log, stderr=log, stdin=subprocess.PIPE)
        yield process
        process.kill()
        process.communicate(timeout=10)


def test_a_process_brings_the_file_that_it_prints_into(writer: subprocess.Popen[bytes], tmp_path: Path) -> None:
    subject = find(pid=writer.pid)
    assert subject.said == f"process {writer.pid}"
    assert subject.log is not None
    assert subject.log.name == str(tmp_path / "own.log")
    assert subject.log_hint == ""
    for name in ("other.log.1", "other.log-20261201.gz", "other.logger"):
        (tmp_path / name).touch()
    other = tmp_path / "other.log"
    other.write_text("x\n")
    named = find(pid=writer.pid, log=other)
    assert named.said == f"process {writer.pid}, log {other}"
    assert named.log_hint == "older parts may be beside it: other.log-20261201.gz, other.log.1"
    assert named.log is not None
    assert named.log.name == str(other)


def test_a_process_that_is_gone_is_a_subject_too(writer: subprocess.Popen[bytes]) -> None:
    writer.kill()
    writer.communicate(timeout=10)
    subject = find(pid=writer.pid)
    assert "does not exist any more" in subject.said
    assert "writes to no file" in subject.log_hint


def test_a_process_inside_a_container_brings_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_subject, "container_of_process", lambda _: "1" * 64)
    docker = FakeDocker([container_facts("1" * 64, "prod", VLLM)])
    subject = find(docker, pid=os.getpid())
    assert subject.said == f"process {os.getpid()} in container prod (running)"
    assert subject.pid == os.getpid()
    assert "of which Docker does not tell" in find(FakeDocker(), pid=os.getpid()).container_hint
