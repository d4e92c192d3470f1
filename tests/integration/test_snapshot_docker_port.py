"""The Docker port's contract, held by the fake and by a real daemon alike: one world of four containers on both.

`up` runs, `down` has ended with 3, `gone` was removed by --rm, and nobody is called `never`.
"""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro.errors import DockerUnavailable
from repro.machine.clock import SystemClock
from repro.machine.containers import (
    find_removed,
    find_vllm_containers,
    inspect_container,
    process_of_container,
    started_at,
)
from repro.machine.docker_api import connect
from repro.machine.docker_port import ASIDE_LABEL, Aside, Docker, NoSuchObject, Ran
from tests.fakes.docker import FakeDocker, container_facts, image_facts
from tests.integration.docker_bed import docker as docker_command
from tests.integration.docker_bed import no_daemon, thin_image

UP_ARGV = ("sh", "-c", "echo first; echo second >&2; echo third; exec vllm serve m")
NOW = 1_800_000_000.0


@dataclass(frozen=True)
class World:
    """A daemon with the containers; `prefix` begins their names, `image` is the tag that they were made from."""

    docker: Docker
    prefix: str
    image: str
    now: float


def fake_program(argv: Sequence[str]) -> Ran:
    """What the two programs of the contract print on Linux."""
    match list(argv):
        case ["sh", "-c", "echo hello; exit 4"]:
            return Ran(4, "hello\n")
        case ["sh", "-c", "cat /proc/net/dev | wc -l; echo $NVIDIA_VISIBLE_DEVICES; touch /x"]:
            return Ran(1, "3\nvoid\ntouch: cannot touch '/x': Read-only file system\n")
        case _:
            return Ran(127, f"{argv[0]}: not found\n")


def fake_world() -> World:
    tag, id = "thin:1", "sha256:" + "c" * 64
    up = container_facts("1" * 64, "x-up", UP_ARGV, tag, id)
    down = container_facts(
        "2" * 64,
        "x-down",
        ("sh", "-c", "exit 3"),
        tag,
        id,
        Status="exited",
        Running=False,
        ExitCode=3,
        FinishedAt="2027-01-15T07:59:00.5Z",
    )
    gone = {"ID": "3" * 64, "Attributes": {"name": "x-gone", "image": tag, "exitCode": "7"}}
    events = [
        {"Action": "die", "Actor": gone, "time": NOW - 5},
        {"Action": "destroy", "Actor": gone, "time": NOW - 4},
    ]
    logs = {up["Id"]: b"first\nsecond\nthird\n"}
    return World(FakeDocker([up, down], [image_facts(id, tag)], logs, events, fake_program), "x", tag, NOW)


@pytest.fixture(scope="module")
def real_world() -> Iterator[World]:
    if reason := no_daemon():
        pytest.skip(reason)
    prefix = f"repro-port-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        image = stack.enter_context(thin_image())
        usr = "--volume=/usr:/usr:ro"
        script = UP_ARGV[2].replace("exec vllm serve m", "sleep 300; : vllm serve m")
        docker_command("run", "--detach", f"--name={prefix}-up", usr, image, *UP_ARGV[:2], script)
        stack.callback(docker_command, "rm", "--force", f"{prefix}-up")
        docker_command("run", "--detach", f"--name={prefix}-down", usr, image, "sh", "-c", "exit 3")
        stack.callback(docker_command, "rm", "--force", f"{prefix}-down")
        docker_command("wait", f"{prefix}-down")
        docker_command("run", "--detach", "--rm", f"--name={prefix}-gone", usr, image, "sh", "-c", "sleep 0.3; exit 7")
        docker_command("wait", f"{prefix}-gone")
        world = World(connect(), prefix, image, SystemClock().now())
        wait_until(lambda: find_removed(world.docker, f"{prefix}-gone", SystemClock().now()) is not None)
        wait_until(lambda: b"".join(world.docker.log(f"{prefix}-up")).count(b"\n") == 3)
        yield world


def wait_until(condition: object, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.docker)])
def world(request: pytest.FixtureRequest) -> World:
    return fake_world() if request.param == "fake" else request.getfixturevalue("real_world")


def test_the_daemon_names_its_parts(world: World) -> None:
    told = world.docker.daemon()
    assert {part["Name"].lower() for part in told["version"]["Components"]} >= {"engine", "containerd", "runc"}
    assert told["info"]["DefaultRuntime"] in told["info"]["Runtimes"]


def test_containers_are_listed_and_inspected(world: World) -> None:
    listed = [each["Id"] for each in world.docker.listed()]
    up, down = (world.docker.container(f"{world.prefix}-{name}") for name in ("up", "down"))
    assert {up["Id"], down["Id"]} <= set(listed)
    assert up["State"]["Running"] is True
    assert started_at(up) is not None
    assert (down["State"]["Running"], down["State"]["ExitCode"]) == (False, 3)
    assert up["Path"] == "sh"
    assert world.docker.container(up["Id"][:12])["Id"] == up["Id"]
    assert world.docker.image(world.image)["Id"] == up["Image"] == world.docker.image(up["Image"])["Id"]


def test_what_is_unknown_is_named(world: World) -> None:
    with pytest.raises(NoSuchObject, match="no container 'never-was'"):
        world.docker.container("never-was")
    with pytest.raises(NoSuchObject, match="no image 'never:was'"):
        world.docker.image("never:was")
    with pytest.raises(NoSuchObject):
        list(world.docker.log("never-was"))
    with pytest.raises(NoSuchObject):
        world.docker.execute(f"{world.prefix}-down", ["sh", "-c", "true"], 20.0)


def test_the_log_holds_both_streams(world: World) -> None:
    name = f"{world.prefix}-up"
    assert sorted(b"".join(world.docker.log(name)).splitlines()) == [b"first", b"second", b"third"]
    assert len(b"".join(world.docker.log(name, tail=1)).splitlines()) == 1
    assert inspect_container(name, world.docker).running


def test_a_vllm_container_is_found_by_what_it_starts(world: World) -> None:
    mine = [each for each in find_vllm_containers(world.docker, world.now) if each.name.startswith(world.prefix)]
    assert [(each.name, each.running) for each in mine] == [(f"{world.prefix}-up", True)]


def test_a_removed_container_is_remembered(world: World) -> None:
    removed = find_removed(world.docker, f"{world.prefix}-gone", world.now + 1)
    assert removed is not None
    assert (removed.name, removed.exit_code) == (f"{world.prefix}-gone", 7)
    assert find_removed(world.docker, "never-was", world.now) is None


def test_a_program_in_a_running_container(world: World) -> None:
    ran = world.docker.execute(f"{world.prefix}-up", ["sh", "-c", "echo hello; exit 4"], 20.0)
    assert ran == Ran(4, "hello\n")


def test_a_throw_away_container_has_nothing_and_leaves_nothing(world: World) -> None:
    label = secrets.token_hex(8)
    argv = ("sh", "-c", "cat /proc/net/dev | wc -l; echo $NVIDIA_VISIBLE_DEVICES; touch /x")
    aside = Aside(world.docker.image(world.image)["Id"], argv, label, ("/usr:/usr:ro",))
    ran = world.docker.run_aside(aside, 60.0)
    assert ran.code == 1
    # The daemon may put a line of standard error before earlier ones of standard output.
    assert {"3", "void"} <= set(ran.output.splitlines()), "two lines of heading and loopback; no GPU"
    assert "Read-only file system" in ran.output
    assert [each["Id"] for each in world.docker.listed() if each["Labels"].get(ASIDE_LABEL) == label] == []
    with pytest.raises(NoSuchObject):
        world.docker.run_aside(Aside("sha256:" + "0" * 64, argv, label), 20.0)


@pytest.mark.docker
def test_a_throw_away_container_that_never_ends_is_removed_at_the_deadline(real_world: World) -> None:
    label = secrets.token_hex(8)
    image = real_world.docker.image(real_world.image)["Id"]
    ran = real_world.docker.run_aside(Aside(image, ("sleep", "300"), label, ("/usr:/usr:ro",)), 1.0)
    assert ran.code is None
    left = docker_command("ps", "--all", "--quiet", "--filter", f"label={ASIDE_LABEL}={label}")
    assert left == ""


@pytest.mark.docker
def test_the_process_of_a_container_is_known_only_if_it_is_seen_here(real_world: World) -> None:
    facts = real_world.docker.container(f"{real_world.prefix}-up")
    pid = process_of_container(facts)
    if shutil.which("docker") and json.loads(docker_command("inspect", facts["Id"]))[0]["State"]["Pid"]:
        assert pid == facts["State"]["Pid"]
    assert process_of_container({**facts, "Id": "f" * 64}) is None


def test_a_daemon_that_never_answers_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen(4)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/silent.sock")
        with pytest.raises(DockerUnavailable, match="does not answer"):
            connect(answer_s=0.3)


def test_no_daemon_is_told_of(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(DockerUnavailable, match="does not answer"):
        connect()
    fake = fake_world().docker
    assert isinstance(fake, FakeDocker)
    fake.down = True
    with pytest.raises(DockerUnavailable):
        fake.listed()
