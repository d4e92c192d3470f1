"""Several logs of one launch: the first failing rank, whatever the order they are given in and whatever their clocks say."""

# ruff: noqa: E501 (log lines stand here as programs print them)
from __future__ import annotations

import json
import os
from collections import defaultdict
from itertools import permutations
from pathlib import Path

import pytest

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.triage import first_failing, triage_file, triage_text

CORPUS = Path(os.environ.get("REPRO_CORPUS") or Path(__file__).parents[4] / "shared" / "corpus")
PEER = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:59019."
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB."
LATE = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."


def log(rank: int, hour: int, *ends: tuple[str, str], formed: bool = True, headless: bool = False) -> str:
    """One node's log by a clock that starts at `hour`; `ends` are (MM:SS, words) of error lines of its worker."""
    first = (
        f"(MainProcess pid=1) INFO 12-01 {hour:02d}:00:00 [serve.py:224] Launching vLLM (v0.32.0) headless multiproc executor, with head node address 10.0.0.1:29600\n"
        if headless
        else f"(APIServer pid=1) INFO 12-01 {hour:02d}:00:00 [api_utils.py:347]  █     █  version 0.32.0\n"
    )
    text = first + (
        f"(Worker pid=9) INFO 12-01 {hour:02d}:00:05 [parallel_state.py:1906] world_size=2 rank={rank} local_rank=0 distributed_init_method=tcp://10.0.0.1:29600 backend=gloo\n"
    )
    if formed:
        text += f"(Worker pid=9) INFO 12-01 {hour:02d}:00:10 [parallel_state.py:2350] rank {rank} in world size 2 is assigned as DP rank 0, PP rank 0, TP rank {rank}\n"
    for clock, words in ends:
        text += f"(Worker_TP{rank} pid=9) ERROR 12-01 {hour:02d}:{clock} [multiproc_executor.py:953] WorkerProc hit an exception.\n"
        text += f"(Worker_TP{rank} pid=9) ERROR 12-01 {hour:02d}:{clock} [multiproc_executor.py:953] Traceback (most recent call last):\n"
        text += f'(Worker_TP{rank} pid=9) ERROR 12-01 {hour:02d}:{clock} [multiproc_executor.py:953]   File "/x/vllm/v1/worker/gpu_worker.py", line 1, in f\n'
        text += f"(Worker_TP{rank} pid=9) ERROR 12-01 {hour:02d}:{clock} [multiproc_executor.py:953] {words}\n"
    return text


def first(*logs: str) -> tuple[int | None, Family | None]:
    """The rank and family that failed first, the same in every order."""
    answers = set()
    named = [(f"node{number}", triage_text(text)) for number, text in enumerate(logs)]
    for order in permutations(named):
        root = first_failing(order).root
        answers.add((root.diagnosis.rank, root.diagnosis.family) if root else (None, None))
    assert len(answers) == 1, answers
    return answers.pop()


def test_a_lost_peer_is_never_first_where_the_peer_tells_its_cause() -> None:
    assert first(log(0, 13, ("10:00", PEER)), log(1, 13, ("10:01", MEMORY), headless=True)) == (1, Family.OOM_GPU)


def test_a_peer_that_is_waited_for_is_first() -> None:
    stuck = "(MainProcess pid=1) INFO 12-01 13:00:00 [serve.py:224] Launching vLLM (v0.32.0) headless multiproc executor, with head node address 10.0.0.1:29600\n'[Errno 101] Network is unreachable' thrown while requesting HEAD https://huggingface.co/m/resolve/main/config.json\n"
    root = first_failing(
        [("a", triage_text(log(0, 13, ("10:00", LATE), formed=False))), ("b", triage_text(stuck))]
    ).root
    assert root is not None
    assert root.source == "b"


def test_equal_causes_are_put_in_order_by_clocks_that_the_group_puts_together() -> None:
    """Node 1's clock is an hour ahead: 14:09 there is 13:09 here, before 13:10."""
    both = (log(0, 13, ("10:00", MEMORY)), log(1, 14, ("09:00", MEMORY)))
    assert first(*both) == (1, Family.OOM_GPU)
    group = first_failing([("a", triage_text(both[0])), ("b", triage_text(both[1]))])
    assert [member.ahead for member in group.members] == [0.0, 3600.0]
    assert "b is +3600 s" in group.note


def test_healthy_logs_and_strangers_are_no_failure() -> None:
    ready = log(0, 13) + "INFO:     Application startup complete.\n"
    group = first_failing([("a", triage_text(ready)), ("b", triage_text("nginx: ready\n"))])
    assert group.root is None
    document = json.loads(json.dumps(group.as_json()))
    assert (document["stage"], document["source"]) == ("none", "a")
    assert [entry["is_vllm_log"] for entry in document["logs"]] == [True, False]


def test_two_that_only_lost_each_other_are_told_so() -> None:
    group = first_failing(
        [("a", triage_text(log(0, 13, ("10:01", PEER)))), ("b", triage_text(log(1, 13, ("10:00", PEER))))]
    )
    assert group.root is not None
    assert group.root.source == "b"
    assert "No log holds a cause" in group.note
    assert "No log holds a cause" in group.as_json()["note"]


def test_groups_of_the_corpus() -> None:
    if not (CORPUS / "cases").is_dir():
        pytest.skip("no labelled corpus beside the repository; name one with REPRO_CORPUS")
    groups = defaultdict(list)
    for path in sorted((CORPUS / "cases").iterdir()):
        label = json.loads((path / "label.json").read_text(encoding="utf-8"))
        if label.get("group"):
            groups[label["group"]].append((path, label))
    for cases in (cases for cases in groups.values() if len(cases) > 1):
        expected = [path.name for path, label in cases if label.get("group_root")]
        for order in permutations(cases):
            root = first_failing([(path.name, triage_file(path / "log.txt")) for path, _ in order]).root
            assert ([root.source] if root else []) == expected
            if root:
                assert root.diagnosis.rank == next(label["rank"] for path, label in cases if path.name == root.source)


def test_a_rank_that_stands_still_before_the_group_is_what_the_others_wait_for() -> None:
    silent = "(MainProcess pid=1) INFO 12-01 13:00:00 [serve.py:224] Launching vLLM (v0.32.0) headless multiproc executor, with head node address 10.0.0.1:29600\n"
    found = triage_text(silent)
    assert (found.stage, found.family) == (Stage.CONTAINER_INIT, Family.HANG)
    root = first_failing([("a", triage_text(log(0, 13, ("10:00", LATE), formed=False))), ("b", found)]).root
    assert root is not None
    assert root.source == "b"
