"""The door to a container client, on a client that is a script: what it is asked, and what its answers mean."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.errors import DockerUnavailable, MissingProgram
from repro.machine.container_family import ContainerFamily
from repro.machine.docker_engine import ContainerClient, ContainerState
from repro.machine.family import Activity

# Answers are read from files named after the first word; every call is noted with the environment's MARK.
CLIENT = """
import json, os, pathlib, sys
here = pathlib.Path(sys.argv[1])
words = sys.argv[2:]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([words, os.environ.get("MARK")]) + "\\n")
answer = here / words[0]
if not answer.exists():
    sys.exit(f"Error: No such object: {words[-1]}")
code, out, err = json.loads(answer.read_text())
sys.stdout.write(out)
sys.stderr.write(err)
sys.exit(code)
"""
FACTS = {
    "Id": "c1",
    "Image": "sha256:i1",
    "RestartCount": 2,
    "State": {"Status": "exited", "Running": False, "ExitCode": 137, "OOMKilled": True, "Error": "", "Pid": 0},
    "NetworkSettings": {"Ports": {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32768"}], "9/tcp": None}},
}
DOWN = "Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?"


class Daemon:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "client.py").write_text(CLIENT)
        self.client = ContainerClient((sys.executable, str(folder / "client.py"), str(folder)), {"PATH": "/bin"})

    def answers(self, word: str, out: str = "", err: str = "", code: int = 0) -> None:
        (self.folder / word).write_text(json.dumps([code, out, err]))

    @property
    def calls(self) -> list[tuple[list[str], str | None]]:
        return [tuple(json.loads(line)) for line in (self.folder / "calls").read_text().splitlines()]


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path)


def test_the_state_of_a_container(daemon: Daemon) -> None:
    assert daemon.client.state("none") is None
    daemon.answers("container", json.dumps([FACTS]))
    state = daemon.client.state("c1")
    assert state == ContainerState("c1", "sha256:i1", "exited", False, 137, True, "", 2, 0, {"8000/tcp": 32768})


def test_an_image_that_is_not_here_has_no_id(daemon: Daemon) -> None:
    assert daemon.client.image_id("vllm") is None
    daemon.answers("image", "sha256:i1\n")
    assert daemon.client.image_id("vllm") == "sha256:i1"


def test_what_a_client_complains_of_is_in_the_log_and_what_it_prints_is_not(daemon: Daemon, tmp_path: Path) -> None:
    daemon.answers("create", out="c1\n", err="WARNING: no swap limit\n")
    daemon.answers("start", err="Error response from daemon: no\n", code=1)
    with (tmp_path / "log").open("wb") as log:
        assert daemon.client.create(("--name", "x", "image"), {"MARK": "7"}, log)
        assert not daemon.client.start("x", {"MARK": "7"}, log)
    assert (tmp_path / "log").read_text() == "WARNING: no swap limit\nError response from daemon: no\n"
    assert daemon.calls == [(["create", "--name", "x", "image"], "7"), (["start", "x"], "7")]


@pytest.mark.parametrize("word", ["info", "container", "image", "ps"])
def test_a_daemon_that_is_down_is_never_an_answer(daemon: Daemon, word: str) -> None:
    daemon.answers(word, err=DOWN, code=1)
    asks: dict[str, Callable[[], object]] = {
        "info": daemon.client.must_answer,
        "container": lambda: daemon.client.state("x"),
        "image": lambda: daemon.client.image_id("x"),
        "ps": lambda: daemon.client.labelled("a=b"),
    }
    with pytest.raises(DockerUnavailable, match=r"unix:///x"):
        asks[word]()


def test_a_client_that_is_not_there() -> None:
    with pytest.raises(MissingProgram):
        ContainerClient(("/no/such/docker",), {}).must_answer()


def test_containers_of_another_machine_are_asked_of_the_daemon(daemon: Daemon) -> None:
    """Pid 1 lives here too, but in no group of this container."""
    daemon.answers("top", "PID TIME\n7 00:01:05\n8 1-00:00:02\n9 ?\n")
    family = ContainerFamily(daemon.client, "x", ContainerState("c1", "", "running", True, 0, False, "", 0, 1, {}))
    assert family.leader is None
    assert family.pids() == frozenset()
    assert family.activity() == Activity(cpu_s=65 + 86402)
    daemon.answers("top", "PID STAT WCHAN COMMAND\n7 Sl  futex_wait   vllm\n")
    assert family.where_it_waits() == ("7 Sl futex_wait vllm",)
