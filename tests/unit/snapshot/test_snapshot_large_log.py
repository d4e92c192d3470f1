"""A log of 2 GB: both ends are judged, lines keep their numbers, memory stays constant, and it takes seconds.

The file is sparse, so that its middle costs no disk; it reads as zero bytes without a line feed.
"""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest

from repro.redact.redactor import Redactor
from repro.snapshot import log as log_room
from repro.snapshot.capture import capture
from repro.snapshot.collector import Collector, Context
from repro.snapshot.log import COPY_NAME, LogCollector, TriageCollector, both_ends
from repro.snapshot.log_source import CHUNK, FileLog, lines_of, numbered
from tests.fakes.clock import FakeClock

SIZE = 2 << 30
SECRET = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9c"
HEAD = (
    "(APIServer pid=1) INFO 12-01 13:46:02 [api_utils.py:327] vLLM server version 0.32.0, serving model m\n"
    f"(APIServer pid=1) INFO 12-01 13:46:02 [x.py:1] token {SECRET}\n"
)
TAIL = (
    "\n(EngineCore pid=2) Traceback (most recent call last):\n"
    '(EngineCore pid=2)   File "/x/vllm/v1/worker/gpu_worker.py", line 73, in execute_model\n'
    "(EngineCore pid=2) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has ...\n"
)
ENDS = 8 << 20  # bytes that are judged at each end; more of them would only take longer
PEAK = 50 << 20  # bytes; the file has forty times as many


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    with path.open("wb") as file:
        file.write(HEAD.encode())
        file.seek(SIZE - len(TAIL))
        file.write(TAIL.encode())
    return path


class Passing(FakeClock):
    """A second a look: the copy's time is over after a few MB, as on a slow disk."""

    def monotonic(self) -> float:
        self.passed += 1.0
        return self.passed


def test_two_gigabytes(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_room, "_HEAD", ENDS)
    monkeypatch.setattr(log_room, "_TAIL", ENDS)
    folder = tmp_path / "snapshot"
    folder.mkdir()
    context = Context(Redactor(), log=FileLog(large), folder=folder)
    tracemalloc.start()
    try:
        collectors: list[Collector] = [LogCollector(deadline=10.0, clock=Passing()), TriageCollector()]
        snapshot = capture(context, collectors)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < PEAK
    assert snapshot.fact("log.bytes").value == SIZE
    assert "the time for copying was over" in snapshot.fact("log.copy").reason
    assert snapshot.triage is not None
    assert snapshot.triage["family"] == "oom_gpu"
    assert snapshot.triage["root_line_no"] == 6, "two lines, one of zeros, two of the traceback"
    with gzip.open(folder / COPY_NAME) as copy:
        begin = copy.read(len(HEAD) + 100)
    assert SECRET.encode() not in begin
    assert begin.startswith(HEAD.splitlines()[0].encode())
    os.truncate(large, 0)


def test_holes_read_as_zeros(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.seek(3 * CHUNK + 17)
        file.write(b"last\n")
        file.truncate(6 * CHUNK + 5)
    log = FileLog(path)
    assert b"".join(log.chunks()) == path.read_bytes()
    assert b"".join(log.chunks(CHUNK + 7)) == path.read_bytes()[CHUNK + 7 :]
    chunks = log.chunks()
    next(chunks)
    os.truncate(path, CHUNK)
    assert list(chunks) == [], "what was truncated meanwhile is no hole"


def test_lines_between_the_ends_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_room, "_HEAD", 1 << 20)
    monkeypatch.setattr(log_room, "_TAIL", 1 << 20)
    path = tmp_path / "server.log"
    path.write_bytes(b"0123456789abcde\n" * (1 << 20))
    seen = b"".join(both_ends(FileLog(path)))
    assert seen.count(b"\n") == 1 << 20
    assert len(seen) < 5 << 20


def test_lines_are_cut_at_line_feeds_alone() -> None:
    chunks = iter([b"one\r", b"two\nthr", b"ee\n\nfour"])
    assert list(lines_of(chunks)) == [b"one\rtwo\n", b"three\n", b"\n", b"four"]
    assert list(lines_of(iter([b"abcdefg\nh"]), longest=3)) == [b"abcdefg\n", b"h"]
    assert list(lines_of(iter([b"abcdefg", b"h\n"]), longest=3)) == [b"abc", b"def", b"gh\n"]
    assert list(numbered(iter([b"abcdef\ng\nh"]), longest=3))[-2:] == [(2, b"g\n"), (3, b"h")]
    assert list(lines_of(iter([b"abc,de fgh"]), longest=8)) == [b"abc,", b"de fgh"], "no word falls in two"
