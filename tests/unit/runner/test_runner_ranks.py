"""The watch over a launch of two ranks, on servers that are scripts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from repro.domain.command import parse
from repro.domain.failure import Family
from repro.domain.launch import Launch
from repro.domain.stage import Stage
from repro.errors import UsageError
from repro.runner.nodes import Node, NodesEngine, NodesServer, parse_node
from repro.runner.port import Ending, Place, Server, StopReport
from repro.runner.watch import Deadlines, NotReady, Ready, Watch
from repro.triage import ExitEvidence, Triage

BANNER = "(APIServer pid=10) INFO 12-01 10:00:00 [utils.py:233] non-default args: {'model': 'm'}"
HEADLESS = (
    "(MainProcess pid=30) INFO 12-01 10:00:00 [serve.py:100] Launching vLLM (v0.32.0) headless multiproc executor"
)
LOST_PEER = (
    "(Worker_TP0 pid=20) ERROR 12-01 10:00:15 [multiproc_executor.py:900] RuntimeError: "
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4711"
)
NO_WEIGHTS = tuple(
    f"(Worker_TP1 pid=31) ERROR 12-01 10:00:14 [multiproc_executor.py:900] {text}"
    for text in (
        "Traceback (most recent call last):",
        '  File "/x/vllm/model_loader/loader.py", line 7, in f',
        "RuntimeError: Cannot find any model weights with `/m`",
    )
)
ReadyAtMaker = Callable[[float], Any]


@pytest.fixture
def pair(server: Any, tmp_path: Path, clock: Any) -> NodesServer:
    other = replace(server, log=tmp_path / "server.rank1.log", id="other")
    return NodesServer((server, other), clock)


def watch(pair: NodesServer, clock: Any, **deadlines: Any) -> Watch:
    return Watch(pair, Triage(), clock, Deadlines(**deadlines))


def test_the_cause_in_the_other_ranks_log_is_the_root(pair: Any, clock: Any, ready_at: ReadyAtMaker) -> None:
    zero, one = pair.ranks
    zero.prints(0.1, BANNER)
    one.prints(0.1, HEADLESS)
    zero.prints(14.9, LOST_PEER)
    one.prints(15.5, *NO_WEIGHTS)
    one.ends(16, 1)
    end = watch(pair, clock).await_ready(ready_at(500))
    assert isinstance(end, NotReady)
    assert end.rank == 1
    assert end.failure.family is Family.WEIGHTS_MISSING
    assert "rank 1 failed first" in end.failure.detail
    assert end.seconds < 30, "rank 0, which lives on, is not waited for"


def test_a_rank_that_is_killed_is_the_root(pair: Any, clock: Any, ready_at: ReadyAtMaker) -> None:
    zero, one = pair.ranks
    zero.prints(0.1, BANNER)
    one.prints(0.1, HEADLESS)

    def killed() -> None:
        one.evidence = ExitEvidence(signal=9)

    clock.at(5, killed)
    zero.prints(6, LOST_PEER)
    one.said = ("oom-kill: somebody",)
    end = watch(pair, clock).await_ready(ready_at(500))
    assert isinstance(end, NotReady)
    assert (end.rank, end.failure.family) == (1, Family.ENGINE_DEAD)
    assert "oom-kill: somebody" in end.failure.detail


def test_a_hang_of_all_ranks_names_where_each_waits(pair: Any, clock: Any, ready_at: ReadyAtMaker) -> None:
    pair.ranks[0].prints(0.1, BANNER)
    end = watch(pair, clock, stall_s=60, stall_by_stage=((Stage.ENGINE_INIT, 5.0),)).await_ready(ready_at(500))
    assert isinstance(end, NotReady)
    assert end.failure.family is Family.HANG
    assert end.failure.detail.count("futex_wait_queue") == 2
    assert "rank 1: 7 VLLM" in end.failure.detail
    assert 5 <= end.seconds < 8, "the stage's own deadline"
    assert end.saved_s == pytest.approx(3600 - end.seconds)
    assert "s before the limit" in end.reason


def test_ready_is_what_rank_0_says(pair: Any, clock: Any, ready_at: ReadyAtMaker) -> None:
    begun = watch(pair, clock)
    assert isinstance(begun.await_ready(ready_at(3)), Ready)
    assert begun.still_alive()
    pair.ranks[1].ends(clock.time + 1, 0)
    clock.sleep(2)
    assert not begun.still_alive()


@dataclass
class Starts:
    """An engine that notes what it is to start; the second start can be made to fail."""

    started: list[tuple[Launch, Place]]
    server: Any
    fails: bool = False

    def start(self, launch: Launch, place: Place) -> Server:
        if self.fails:
            raise UsageError("no")
        self.started.append((launch, place))
        server: Server = self.server
        return server


def test_only_the_rank_differs(server: Any, clock: Any) -> None:
    started: list[tuple[Launch, Place]] = []
    nodes = [Node(f"n{n}", Starts(started, server), f"10.0.0.{n}", (("VLLM_HOST_IP", f"10.0.0.{n}"),)) for n in (1, 2)]
    group = NodesEngine(nodes, clock).start(
        Launch(parse("vllm serve m --tensor-parallel-size 2 --headless")), Place(Path("r"), Path("logs/server.log"))
    )
    (first, at), (second, beside) = started
    zero, one = first.command, second.command
    assert (zero.flag("--node-rank"), one.flag("--node-rank")) == ("0", "1")
    assert (zero.flag("--headless"), one.flag("--headless")) == (None, True)
    assert one.environment_value("VLLM_HOST_IP") == "10.0.0.2"
    for name in ("--nnodes", "--master-addr", "--master-port", "--tensor-parallel-size"):
        assert zero.flag(name) == one.flag(name) is not None
    assert zero.flag("--master-addr") == "10.0.0.1"
    assert (at.log, beside.log) == (Path("logs/server.log"), Path("logs/server.rank1.log"))
    assert group.stop() == StopReport(Ending.INTERRUPTED, 0, 0.0)


def test_a_rank_that_cannot_be_started_takes_the_others_along(server: Any, clock: Any) -> None:
    stopped = []

    class Stoppable:
        def stop(self) -> None:
            stopped.append(1)

    nodes = [Node("a", Starts([], Stoppable()), "10.0.0.1"), Node("b", Starts([], server, fails=True), "10.0.0.2")]
    with pytest.raises(UsageError):
        NodesEngine(nodes, clock).start(Launch(parse("vllm serve m")), Place(Path("r"), Path("l.log")))
    assert stopped == [1]


def test_nodes_are_read(clock: Any) -> None:
    node = parse_node("docker:mine@10.1.0.5", 1, clock)
    assert node.address == "10.1.0.5"
    assert ("VLLM_HOST_IP", "10.1.0.5") in node.environment
    assert parse_node("docker:mine", 0, clock).address == "repro-node-0"
    for wrong in ("mine", "docker:", "netns:", "ssh:host"):
        with pytest.raises(UsageError, match="no node"):
            parse_node(wrong, 0, clock)
    with pytest.raises(UsageError, match="no group"):
        NodesEngine([node], clock)
