"""What stands before a message is taken off, whatever tool put it there, and the process is named."""

# ruff: noqa: E501 (log lines stand here as programs print them)
from __future__ import annotations

import pytest

from repro.triage import template
from repro.triage.framing import frame, split_bar
from repro.triage.lines import KEEP_PER_LINE, LineSplitter

SHAPES = [
    ("INFO 10-01 16:03:00 api_server.py:526] vLLM API server version 0.6.1", None, "INFO", "vLLM API server"),
    ("(VllmWorkerProcess pid=7) INFO 10-01 16:03:11 multiproc_worker_utils.py:218] Worker ready", "VllmWorkerProcess", "INFO", "Worker ready"),
    ("(RayWorkerWrapper pid=7, ip=10.1.2.3) ERROR 07-25 07:05:40 worker_base.py:382] Error executing", "RayWorkerWrapper", "ERROR", "Error executing"),
    ("(VllmWorker rank=3 pid=62) ERROR 07-26 18:54:37 [multiproc_executor.py:511] WorkerProc failed", "VllmWorker rank=3", "ERROR", "WorkerProc failed"),
    ("(VllmWorker TP1 pid=18) ERROR 09-02 08:11:15 [multiproc_executor.py:596] boom", "VllmWorker TP1", "ERROR", "boom"),
    ("(Worker_DP0_TP0_EP0 pid=18) WARNING 09-02 08:11:15 [a.py:596] boom", "Worker_DP0_TP0_EP0", "WARNING", "boom"),
    ("\x1b[0;36m(EngineCore_DP0 pid=26)\x1b[0;0m ERROR 12-01 14:16:02 [core.py:946]   File \"x\"", "EngineCore_DP0", "ERROR", '  File "x"'),
    ("(APIServer pid=1) (EngineCore_DP0 pid=68) INFO 11-12 16:25:35 [core.py:7] text", "EngineCore_DP0", "INFO", "text"),
    ("(APIServer pid=1) INFO:     Application startup complete.", "APIServer", "INFO", "Application startup"),
    ("vllm-1  | ERROR:    [Errno 98] error", None, "ERROR", "[Errno 98]"),
    ("2025-06-27 13:04:50,300 - __main__ - INFO - ERROR 06-27 13:04:51 [core.py:515] ValueError: x", None, "ERROR", "ValueError: x"),
    ("[rank2]:[E1001 16:13:17.537131907 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog", "rank2", "ERROR", "[Rank 2] Watchdog"),
    ("[W616 02:15:28.300401180 TCPStore.cpp:358] [c10d] TCP client failed", None, "WARNING", "[c10d] TCP client"),
    ("W1201 14:14:11.442000 25539 torch/utils/cpp_extension.py:118] No CUDA runtime", None, "WARNING", "No CUDA runtime"),
    ("node7:59:60 [0] NCCL WARN Cuda failure", "node7:59", "ERROR", "NCCL WARN Cuda failure"),
    ("[2025-11-02 10:00:00] node7:59:60 [0] misc/shmutils.cc:72 NCCL WARN Error: failed", "node7:59", "ERROR", "NCCL WARN Error"),
    ('{"log":"(Worker pid=3) ERROR 12-01 13:11:31 [m.py:9] boom\\n","stream":"stderr","time":"t"}', "Worker", "ERROR", "boom"),
    ('{"level":"error","message":"it broke","ts":1}', None, "ERROR", "it broke"),
    ("(RayWorkerWrapper pid=9) ERROR 07-25 07:05:40 w.py:3] boom [repeated 7x across cluster]", "RayWorkerWrapper", "ERROR", "boom"),
    ("Loading safetensors: 100%|##| 1/1 [00:00]ERROR 07-25 07:05:40 [w.py:3] boom", None, "ERROR", "boom"),
    ("nothing before it", None, None, "nothing before it"),
    ("{not json}", None, None, "{not json}"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "process", "level", "message"), SHAPES)
def test_frame(line: str, process: str | None, level: str | None, message: str) -> None:
    found = frame(line)
    assert (found.process, found.level) == (process, level)
    assert found.message.startswith(message)


def test_indentation_behind_a_container_stamp_is_kept() -> None:
    assert frame('2025-08-29T04:37:10.911021Z   File "/x", line 1, in y').message == '  File "/x", line 1, in y'


def test_a_bar_and_the_message_behind_it_are_two_parts() -> None:
    assert split_bar("\rLoading: 0%\rLoading: 100%\r(Worker pid=3) boom") == [
        "Loading: 0%",
        "Loading: 100%",
        "(Worker pid=3) boom",
    ]
    assert split_bar("no bar") == ["no bar"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "(Worker pid=8710) ERROR 12-01 13:11:31 [m.py:953] RuntimeError: port 29777 of 10.0.0.1:80 at 0x7f3a in /a/b/c.py",
            "2026-01-01T00:00:00Z (Worker_TP3 pid=11) ERROR 01-02 03:04:05 [m.py:1] RuntimeError: port 1 of 10.9.9.9:81 at 0xdead in /x/y",
        ),
        ("Tried to allocate 224.00 MiB. GPU 0", "Tried to allocate 1,024 MiB. GPU 7"),
        ("request chatcmpl-9e545abe failed", "request chatcmpl-77c1aa failed"),
    ],
)
def test_the_same_fault_of_another_run_has_the_same_template(one: str, other: str) -> None:
    assert template(one) == template(other)


def test_different_faults_have_different_templates() -> None:
    assert template("ValueError: no workspace for 7 sequences") != template("ValueError: no kernel for 7 sequences")


def split(raw: bytes, size: int) -> list[tuple[int, bytes]]:
    lines = LineSplitter()
    found: list[tuple[int, bytes]] = []
    for start in range(0, len(raw), size):
        found.extend(lines.feed(raw[start : start + size]))
    found.extend(lines.finish())
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_in_any_chunks(size: int) -> None:
    raw = b"one\n\ntwo\r\n\nthree"
    assert split(raw, size) == [(1, b"one"), (2, b""), (3, b"two\r"), (4, b""), (5, b"three")]
    assert split(b"", size) == []


def test_an_endless_line_is_cut_and_the_next_one_is_whole() -> None:
    raw = b"x" * (10 * 1024 * 1024) + b"\nnext\n"
    for size in (65536, len(raw)):
        first, second = split(raw, size)
        assert (first[0], len(first[1])) == (1, KEEP_PER_LINE)
        assert second == (2, b"next")
