"""The stand-in on several nodes under the nodes engine: two ranks on loopback, ready together, judged together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repro.domain.command import Command
from repro.domain.failure import Family
from repro.domain.launch import Launch
from repro.domain.stage import Stage
from repro.machine.clock import SystemClock
from repro.probe.client import HttpClient
from repro.probe.readiness import CompletionReadiness
from repro.runner.nodes import Node, NodesEngine, NodesServer
from repro.runner.port import Place
from repro.runner.process import ProcessEngine, StopTimes
from repro.runner.watch import Deadlines, NotReady, Ready, Watch
from repro.triage import Triage

ROOT = Path(__file__).resolve().parents[2]
CLOCK = SystemClock()
QUICK = StopTimes(interrupt_s=1, terminate_s=1, family_s=1)
PROGRAM = (sys.executable, "-m", "repro.simulator", "serve")
ONE_RANK_LACKS_WEIGHTS = """
[[fault]]
stage = "weight_access"
family = "weights_missing"
when = "node_rank == 1"
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., NodesServer]]:
    started: list[NodesServer] = []

    def begin(**environment: str) -> NodesServer:
        nodes = [Node(f"loopback {n}", ProcessEngine(CLOCK, stop_times=QUICK), "127.0.0.1") for n in range(2)]
        place = Place(tmp_path / "servers", tmp_path / "logs" / "server.log", ROOT)
        given = {"REPRO_SIMULATOR_STARTUP_SECONDS": "0.02", "PYTHONPATH": str(ROOT), **environment}
        command = Command(PROGRAM, "moonshotai/Kimi-K3").with_flag("--tensor-parallel-size", "8")
        launch = Launch(command, environment=tuple(given.items()))
        started.append(NodesEngine(nodes, CLOCK).start(launch, place))
        return started[-1]

    yield begin
    for server in started:
        server.stop()


def watched(server: NodesServer) -> Ready | NotReady:
    return Watch(server, Triage(), CLOCK, Deadlines(total_s=60)).await_ready(
        CompletionReadiness(lambda url: HttpClient(url, CLOCK))
    )


@pytest.mark.parametrize("rust", ["0", "1"])
def test_two_ranks_become_ready_together_whatever_the_front_end(start: Callable[..., NodesServer], rust: str) -> None:
    server = start(VLLM_USE_RUST_FRONTEND=rust)
    assert isinstance(watched(server), Ready)
    first, second = (rank.log.read_text() for rank in server.ranks)
    assert ("OpenAI server is ready to accept requests" in first) is (rust == "1")
    assert ("Application startup complete" in first) is (rust == "0")
    assert "headless multiproc executor" in second


def test_the_rank_with_the_cause_is_named(start: Callable[..., NodesServer], tmp_path: Path) -> None:
    faults = tmp_path / "faults.toml"
    faults.write_text(ONE_RANK_LACKS_WEIGHTS)
    end = watched(start(REPRO_SIMULATOR_FAULTS=str(faults)))
    assert isinstance(end, NotReady)
    assert (end.rank, end.failure.stage, end.failure.family) == (1, Stage.WEIGHT_ACCESS, Family.WEIGHTS_MISSING)
