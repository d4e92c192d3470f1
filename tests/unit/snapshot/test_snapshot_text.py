"""The ten lines: at most ten, whatever happened; privileges first; neighbours are others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro.cli.snapshot_take import launch_minutes, seconds_of
from repro.cli.snapshot_text import Checked, price, ten_lines
from repro.domain.fingerprint import Fact, FactDifference, Fingerprint
from repro.errors import UsageError
from repro.snapshot.capture import Snapshot

TRIAGE: dict[str, Any] = {
    "stage": "serving",
    "family": "oom_gpu",
    "root_line_no": 7,
    "root_line": "torch.OutOfMemoryError: " + "x" * 500,
    "reached": [
        {"stage": "container_init", "line": "(A pid=1) INFO 12-01 10:00:00 [a.py:1] x", "line_no": 1},
        {"stage": "api_ready", "line": "(A pid=1) INFO 12-01 10:20:00 [a.py:1] y", "line_no": 3},
    ],
}


def measured(**groups: dict[str, Any]) -> dict[str, dict[str, Fact]]:
    return {group: {name: Fact.measured(v) for name, v in members.items()} for group, members in groups.items()}


def snapshot(**more: Any) -> Snapshot:
    facts = measured(
        container={"id": "c" * 64, "state": {"running": False, "exit_code": 0, "oom_killed": True}},
        process={"pid": 10, "children": [{"pid": 11, "name": "VLLM::EngineCore"}]},
        gpu={
            "processes": [
                {"gpu": 0, "pid": 11, "memory": 1 << 30, "command": "own", "container": None},
                {"gpu": 1, "pid": 70, "memory": 3 << 30, "command": "train.py", "container": "d" * 64},
                {"gpu": 1, "pid": 12, "memory": 1 << 30, "command": None, "container": "c" * 64},
            ]
        },
    )
    told: dict[str, Any] = {"triage": TRIAGE, "missing": {}, "taken": {"host": 5.0, "container": 30.0}, **more}
    return Snapshot("id", 0.0, 1.5, facts, Fingerprint(), **told)


def lines(shot: Snapshot, checked: Checked | None = None) -> dict[str, str]:
    told = ten_lines(shot, Path("/w/id"), "container prod", checked, "repro bisect")
    assert len(told) <= 10
    assert max(map(len, told)) <= 200
    return dict(line.partition(": ")[::2] for line in told)


def test_ten_lines() -> None:
    difference = FactDifference("gpu.driver_version", True, Fact.measured("575"), Fact.measured("580"))
    shot = snapshot(previous="before", changed=(difference,))
    told = lines(shot, Checked("kimi-k3-b300", ("driver: R575 is too old",), 2))
    assert len(told) == 10
    assert told["stage"] == "serving/oom_gpu (the container ended with 0, killed for memory)"
    assert told["root"].startswith("line 7: torch.OutOfMemoryError")
    assert told["recipe"] == "kimi-k3-b300: broken at driver: R575 is too old"
    assert told["neighbours on the GPUs"] == f"pid 70 on GPU 1 (3.0 GiB) in container {'d' * 12}: train.py"
    assert told["changed since before"] == "gpu.driver_version"
    assert told["warning"] == "the facts of host and container were taken 25 s apart"
    assert told["next"] == "repro bisect"


def test_privileges_come_first_and_what_was_not_asked_for_not_at_all() -> None:
    missing = {
        "host.numa": "the kernel shows no NUMA nodes",
        "process.libraries": "permission denied: /proc/1/maps; needs its owner or root",
        "request.body": "no request was given (--request FILE)",
        "gpu.devices": "NVML: Driver Not Loaded",
        "gpu.state": "NVML: Driver Not Loaded",
        "kernel.messages": "neither may be read; it needs root or CAP_SYSLOG",
    }
    told = lines(snapshot(missing=missing))["not seen"]
    first = "process.libraries (permission denied: /proc/1/maps; needs its owner or root); kernel.messages"
    assert told.startswith(f"4 in SNAPSHOT.md, among them {first}")
    assert "request" not in told
    assert "recipe" not in lines(snapshot())
    unknown = lines(snapshot(), Checked("generic", (), 3))["recipe"]
    assert unknown == "generic: no link is known to be broken, 3 rules cannot be answered (repro check)"
    assert lines(snapshot())["not seen"] == "nothing that was asked for"


def test_a_gpu_that_does_not_answer_stands_beside_the_neighbours() -> None:
    hidden = {"gpu": 0, "mig": None, "pid": 99, "memory": None, "command": None, "container": None}
    fact = Fact.measured([hidden], "without GPU 3: GPU is lost")
    shot = replace(snapshot(), facts={"gpu": {"processes": fact}})
    told = "pid 99 on GPU 0 (memory not told): not visible; without GPU 3: GPU is lost"
    assert lines(shot)["neighbours on the GPUs"] == told


def test_what_failed_may_be_unknown_or_nothing() -> None:
    assert lines(snapshot(triage=None))["stage"].startswith("not known, not collected (the container ended")
    healthy = lines(snapshot(triage={"stage": "none"}))
    assert healthy["stage"].startswith("none, the log tells of no failure")
    assert "root" not in healthy
    other = lines(snapshot(triage={"stage": "none", "is_vllm_log": False}))
    assert other["stage"].startswith("not known, what was read is no log of vLLM")


def test_the_price() -> None:
    assert price((4, 9), 40, 15.0, 8) == (
        "4 to 9 launches if one setting alone is the cause, at most 40 (600 min, 80.0 GPU-hours)"
    )
    assert "no GPU" in price((4, 9), 40, 15.0, 0)
    assert price((5, 5), 12, 15.0, 0).startswith("5 launches if")
    assert launch_minutes(snapshot()) == 20.0
    assert launch_minutes(snapshot(triage=None)) == 15.0
    assert launch_minutes(snapshot(triage={**TRIAGE, "reached": TRIAGE["reached"][:1]})) == 15.0


def test_lengths_of_time() -> None:
    assert [seconds_of(text) for text in ("90", "90s", "1.5m", "2h", "1d")] == [90, 90, 90, 7200, 86400]
    with pytest.raises(UsageError, match="--since"):
        seconds_of("yesterday")
