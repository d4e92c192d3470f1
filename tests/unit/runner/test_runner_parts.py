from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from repro.domain.command import parse
from repro.domain.launch import Launch
from repro.errors import MissingProgram, PortInUse, UsageError
from repro.machine.family import Activity
from repro.machine.processes import ProcessRef
from repro.runner.environment import launch_environment
from repro.runner.listen import as_written, on_free_port, stranger_on
from repro.runner.port import Place
from repro.runner.process import ProcessEngine
from repro.runner.record import ServerRecord, mark_ended, open_records, write_record
from repro.runner.stillness import Stillness
from repro.runner.tail import LogTail

HERE = {"PATH": "/bin", "HOME": "/h", "HF_TOKEN": "hf_secret", "VLLM_SECRET_OF_MINE": "x", "LC_ALL": "C"}


def launch(line: str, **more: Any) -> Launch:
    return Launch(parse(line), **more)


def test_nothing_leaks_into_a_server() -> None:
    made = launch("A=1 B=2 vllm serve m", environment=(("B", "0"), ("C", "3")), environment_from=("HF_TOKEN",))
    environment = launch_environment(made, HERE, ("REPRO_SERVER_ID", "id"))
    assert environment == {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "HF_TOKEN": "hf_secret",
        "A": "1",
        "B": "2",
        "C": "3",
        "REPRO_SERVER_ID": "id",
    }


def test_a_name_to_pass_through_must_be_set() -> None:
    with pytest.raises(UsageError, match="WANDB_KEY"):
        launch_environment(launch("vllm serve m", environment_from=("WANDB_KEY",)), HERE, ("M", "1"))


def test_a_server_is_moved_to_a_free_port_of_loopback() -> None:
    command = parse("vllm serve m --host 0.0.0.0 --port=8000 --uds /run/x.sock --dtype auto")
    moved = on_free_port(command)
    port = moved.base_url.rpartition(":")[2]
    assert moved.base_url.startswith("http://127.0.0.1:")
    assert port != "8000"
    assert moved.command.flag("--port") == port
    assert moved.command.flag("--host") == "127.0.0.1"
    assert moved.command.flag("--uds") is None
    assert moved.command.flag("--dtype") == "auto"
    assert on_free_port(parse("vllm serve m --ssl-certfile c.pem")).base_url.startswith("https://")


def test_a_kept_port_that_is_taken_is_named_with_its_holder() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"{port} is taken by process \d+ \("):
            as_written(parse(f"vllm serve m --port {port}"))
    kept = as_written(parse(f"vllm serve m --host 0.0.0.0 --port {port}"))
    assert kept.base_url == f"http://127.0.0.1:{port}"


def test_who_holds_a_port_is_told_apart_from_the_servers_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        assert stranger_on(port, {os.getpid()}) is None
        assert f"process {os.getpid()}" in (stranger_on(port, {1}) or "")
        assert stranger_on(port, ()) is None, "with no family to compare, nothing is said"
    assert stranger_on(port, {1}) is None


@pytest.mark.parametrize(
    ("line", "error", "says"),
    [
        ("/no/such/vllm serve m", MissingProgram, "/no/such/vllm"),
        ("docker run --gpus all vllm/vllm-openai m", UsageError, "container"),
    ],
)
def test_what_cannot_be_started_leaves_no_record(
    tmp_path: Path, clock: Any, line: str, error: type[Exception], says: str
) -> None:
    place = Place(tmp_path / "servers", tmp_path / "log")
    with pytest.raises(error, match=says):
        ProcessEngine(clock).start(launch(line), place)
    assert list(tmp_path.iterdir()) == []


def record(name: str, **more: Any) -> ServerRecord:
    return ServerRecord(name, "abc", ("vllm", "serve"), "/l", ProcessRef(1, 2.5), 3.5, **more)


def test_records_are_read_back_until_ended(tmp_path: Path) -> None:
    first, second = record("a"), record("b")
    write_record(tmp_path, first)
    write_record(tmp_path, second)
    (tmp_path / "c.json").write_text('{"half')
    assert list(open_records(tmp_path)) == [first, second]
    mark_ended(tmp_path, first, 9.0)
    assert list(open_records(tmp_path)) == [second]
    assert list(open_records(tmp_path / "absent")) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "b.json", "c.json"], "no draft stays"


def test_a_tail_gives_each_byte_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LogTail(path)
    assert tail.read() == b""
    path.write_bytes(b"one\ntw")
    assert tail.read() == b"one\ntw"
    assert tail.read() == b""
    with path.open("ab") as file:
        file.write(b"o\n")
    assert tail.read() == b"o\n"


@pytest.mark.parametrize(("share", "stalls"), [(0.0, True), (0.005, True), (0.02, False), (1.0, False)])
def test_only_real_cpu_time_counts_as_life(share: float, stalls: bool) -> None:
    time = 0.0
    stillness = Stillness(lambda: Activity(share * time), 0.0)
    told = []
    for step in range(400):
        time = float(step)
        told.append(stillness.stalled(time, 100))
    assert any(told) is stalls
    if stalls:
        assert told.index(True) == 100


def test_work_before_the_last_sign_of_life_does_not_count() -> None:
    spent = 0.0
    stillness = Stillness(lambda: Activity(spent), 0.0)
    assert not stillness.stalled(50, 100)
    spent = 30.0
    stillness.alive(60)
    assert not stillness.stalled(110, 100)
    assert not stillness.stalled(159, 100)
    assert stillness.stalled(160, 100)
