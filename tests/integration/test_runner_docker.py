"""Containers that fail before vLLM speaks: each a result in the daemon's words, none an exception; nothing stays."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from repro.domain.command import Command
from repro.domain.failure import Failure, Family
from repro.domain.launch import Launch
from repro.domain.stage import Stage
from repro.errors import DockerUnavailable, MissingProgram
from repro.machine.clock import SystemClock
from repro.runner.container_command import LABEL
from repro.runner.docker import DockerEngine, DockerServer
from repro.runner.port import Place
from repro.runner.process import StopTimes
from repro.runner.record import open_records
from repro.runner.watch import Deadlines, NotReady, Watch
from repro.triage import Triage
from tests.integration.docker_bed import container, docker, no_daemon, thin_image

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mounts the system's own programs"),
]
CLOCK = SystemClock()
HASTY = StopTimes(interrupt_s=0.5, terminate_s=0.5)
NEVER = "/health: refused"


class NeverReady:
    def check(self, base_url: str) -> str | None:
        return NEVER


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if reason := no_daemon():
        pytest.skip(reason)
    with thin_image() as reference:
        yield reference


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "servers", tmp_path / "logs" / "server.log")


@pytest.fixture
def start(place: Place) -> Iterator[Callable[..., DockerServer]]:
    started: list[DockerServer] = []

    def begin(
        image: str,
        *options: str,
        argv: tuple[str, ...] = ("/bin/sh", "-c", "exit 0"),
        wrapper: tuple[str, ...] = (),
    ) -> DockerServer:
        command = Command(argv, None, container=container(image, *options), wrapper=wrapper)
        server = DockerEngine(CLOCK, stop_times=HASTY).start(Launch(command), place)
        started.append(server)
        return server

    yield begin
    for server in started:
        server.stop()
        assert not docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={server.id}")
    assert list(open_records(place.records)) == []


def failure_of(server: DockerServer) -> Failure:
    end = Watch(server, Triage(), CLOCK, Deadlines(total_s=30, stall_s=20, grace_s=1)).await_ready(NeverReady())
    assert isinstance(end, NotReady)
    return end.failure


Start = Callable[..., DockerServer]

REFUSED = {
    "no GPU runtime": (("--gpus=all",), Family.OTHER, "could not select device driver"),
    "no such runtime": (("--runtime=nvidia",), Family.OTHER, "runtime"),
    "no device": (("--device=/dev/no-such-device",), Family.OTHER, "/dev/no-such-device"),
    "no mount source": (("--mount=type=bind,src=/no/such/folder,dst=/x",), Family.OTHER, "/no/such/folder"),
    "no such user": (("--user=nobody-at-all",), Family.OTHER, "nobody-at-all"),
    "no such network": (("--network=no-such-network",), Family.OTHER, "no-such-network"),
    "not executable": (("--entrypoint=/etc/not-a-program",), Family.ENTRYPOINT, "permission denied"),
    "a folder": (("--entrypoint=/etc",), Family.ENTRYPOINT, "permission denied"),
    "not there": (("--entrypoint=/no/such/vllm",), Family.ENTRYPOINT, "/no/such/vllm"),
    "another processor": (("--entrypoint=/etc/arm-program",), Family.ENTRYPOINT, "exec format error"),
    "no interpreter": (("--entrypoint=/etc/no-interpreter",), Family.ENTRYPOINT, "no such file"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_a_result_in_the_daemons_words(image: str, start: Start, case: str) -> None:
    options, family, words = REFUSED[case]
    failure = failure_of(start(image, *options))
    assert (failure.stage, failure.family) == (Stage.CONTAINER_INIT, family)
    assert failure.root_line is not None
    assert words in failure.root_line


def test_an_image_that_is_not_here_is_not_pulled(start: Start) -> None:
    server = start("repro-no-such-image:1")
    assert server.image_id is None
    failure = failure_of(server)
    assert (failure.stage, failure.family) == (Stage.CONTAINER_INIT, Family.IMAGE_MISSING)
    assert "repro-no-such-image:1" in (failure.root_line or "")


def test_a_published_port_that_is_taken(image: str, start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        failure = failure_of(start(image, f"--publish=127.0.0.1:{port}:9400"))
    assert (failure.stage, failure.family) == (Stage.CONTAINER_INIT, Family.PORT_IN_USE)
    assert str(port) in (failure.root_line or "")


@pytest.mark.parametrize("code", [126, 127])
def test_a_shell_that_finds_nothing(image: str, start: Start, code: int) -> None:
    program = "/etc/not-a-program" if code == 126 else "vllm-that-is-not-there"
    server = start(image, argv=(program, "serve"), wrapper=("/bin/sh", "-c"))
    failure = failure_of(server)
    assert (failure.stage, failure.family) == (Stage.CONTAINER_INIT, Family.ENTRYPOINT)
    evidence = server.exit_evidence()
    assert evidence is not None
    assert evidence.code == code


def test_a_kill_for_lack_of_memory_is_told_by_the_daemon(image: str, start: Start) -> None:
    code = "print('first', flush=True); held = [bytearray(1 << 20) for _ in range(4096)]"
    server = start(image, "--memory=64m", "--memory-swap=64m", argv=(sys.executable, "-c", code))
    failure = failure_of(server)
    evidence = server.exit_evidence()
    assert evidence is not None
    assert (evidence.code, evidence.oom_killed) == (137, True)
    assert failure.family is Family.OOM_HOST


def test_the_image_is_recorded_by_its_id(image: str, start: Start, place: Place) -> None:
    server = start(image, argv=("/bin/sh", "-c", "sleep 60"))
    assert server.image_id == docker("image", "inspect", "--format", "{{.Id}}", image)
    (record,) = open_records(place.records)
    assert record.image == server.image_id
    assert docker("inspect", "--format", "{{.Config.Image}}", server.name) == server.image_id


def test_a_container_that_somebody_removes_has_ended(image: str, start: Start) -> None:
    server = start(image, argv=("/bin/sh", "-c", "sleep 60"))
    assert server.exit_evidence() is None
    docker("rm", "--force", server.name)
    failure = failure_of(server)
    assert failure.stage is Stage.CONTAINER_INIT


def test_a_daemon_that_is_down_is_an_error_and_no_result(tmp_path: Path, place: Place) -> None:
    box = replace(container("any"), client=("docker", "-H", f"unix://{tmp_path}/none.sock", "run"))
    with pytest.raises(DockerUnavailable, match=r"none\.sock"):
        DockerEngine(CLOCK).start(Launch(Command(("vllm",), "m", container=box)), place)
    assert list(open_records(place.records)) == []
    missing = replace(box, client=("/no/such/docker", "run"))
    with pytest.raises(MissingProgram):
        DockerEngine(CLOCK).start(Launch(Command(("vllm",), "m", container=missing)), place)
