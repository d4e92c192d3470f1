"""The log's copy is whole, masked and compressed; what goes wrong is said in its field."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro.domain.failure import Family
from repro.domain.fingerprint import Fact
from repro.domain.stage import Stage
from repro.errors import DockerUnavailable
from repro.redact.redactor import Redactor
from repro.snapshot.capture import capture
from repro.snapshot.collector import Context
from repro.snapshot.log import COPY_NAME, LONGEST_PART, LogCollector, TriageCollector
from repro.snapshot.log_source import CHUNK, FileLog
from repro.triage import Diagnosis, ExitEvidence, Triage
from tests.fakes.clock import FakeClock

SECRET = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9c"


def copied(folder: Path) -> bytes:
    return gzip.decompress((folder / COPY_NAME).read_bytes())


def collect(log: Path, folder: Path, collector: LogCollector | None = None) -> dict[str, Fact]:
    folder.mkdir(exist_ok=True)
    return dict((collector or LogCollector()).collect(Context(Redactor(), log=FileLog(log), folder=folder)))


def test_the_copy_keeps_every_byte_but_the_secret(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    content = b"INFO start\r\nlogged in with " + SECRET.encode() + b"\n\xff\xfe not UTF-8 \xe4\nlast, no newline"
    log.write_bytes(content)
    facts = collect(log, tmp_path / "out")
    assert copied(tmp_path / "out") == content.replace(SECRET.encode(), b"***masked:hf_token:1***")
    assert facts["lines"].value == 4
    assert facts["bytes"].value == len(content)
    assert facts["copy"] == Fact.measured(COPY_NAME)


def test_equal_logs_give_equal_bytes(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("one\ntwo\n")
    collect(log, tmp_path / "a")
    collect(log, tmp_path / "b")
    assert (tmp_path / "a" / COPY_NAME).read_bytes() == (tmp_path / "b" / COPY_NAME).read_bytes()


def test_what_is_appended_during_the_copy_is_not_taken(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("line\n" * 10)

    class Appending(FakeClock):
        def monotonic(self) -> float:
            with log.open("a") as file:
                file.write("later\n")
            return 0.0

    facts = collect(log, tmp_path / "out", LogCollector(clock=Appending()))
    assert copied(tmp_path / "out").startswith(b"line\n" * 10)
    assert facts["copy"].known
    assert len(copied(tmp_path / "out")) == facts["bytes"].value


def test_a_log_that_is_truncated_meanwhile_says_so(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("line\n" * 500_000)

    class Truncating(FakeClock):
        def monotonic(self) -> float:
            os.truncate(log, 0)
            return 0.0

    facts = collect(log, tmp_path / "out", LogCollector(clock=Truncating()))
    assert "truncated while it was copied" in facts["copy"].reason
    assert facts["bytes"].value == 2_500_000


def test_the_copy_ends_properly_when_its_time_is_over(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"line\n" * (10 * CHUNK // 5))

    class Passing(FakeClock):
        def monotonic(self) -> float:
            self.passed += 1.0
            return self.passed

    facts = collect(log, tmp_path / "out", LogCollector(deadline=5.0, clock=Passing()))
    assert len(copied(tmp_path / "out")) == 4 * CHUNK
    assert facts["copy"].reason.startswith(f"only the first {4 * CHUNK} of ")
    assert facts["copy"].reason.endswith("bytes: the time for copying was over")


def test_a_named_pipe_or_a_folder_is_no_log(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", tmp_path):
        snapshot = capture(
            Context(Redactor(), log=FileLog(place), folder=tmp_path), [LogCollector(), TriageCollector()]
        )
        assert "not a regular file" in snapshot.missing["log.copy"]
        assert "not a regular file" in snapshot.missing["triage.diagnosis"]
    assert not (tmp_path / COPY_NAME).exists()


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * (3 << 20))
    longest = 0
    lines = Redactor.lines

    def watched(self: Redactor, source: object) -> object:
        nonlocal longest
        for line in lines(self, source):  # type: ignore[arg-type]
            longest = max(longest, len(line))
            yield line

    monkeypatch.setattr(Redactor, "lines", watched)
    assert collect(log, tmp_path / "out")["lines"].value == 1
    assert longest == LONGEST_PART
    assert io.BytesIO(copied(tmp_path / "out")).getbuffer().nbytes == 3 << 20


def test_triage_is_kept_masked(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"ValueError: bad {SECRET} in a bare traceback\n")

    class Known(Triage):
        def diagnose(self, exit: ExitEvidence | None = None) -> Diagnosis:
            return Diagnosis(Stage.SERVING, Family.OTHER, root_line=f"bad {SECRET}")

    facts = TriageCollector(Known).collect(Context(Redactor(), log=FileLog(log)))
    assert facts["diagnosis"].value["root_line"] == "bad ***masked:hf_token:1***"


def test_the_real_triage_reads_a_failing_start(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "(APIServer pid=1) INFO 11-30 10:00:00 [api_server.py:1] vLLM API server version 0.32.0\n"
        "(APIServer pid=1) Traceback (most recent call last):\n"
        '(APIServer pid=1)   File "/x/vllm/entrypoints/cli/main.py", line 73, in main\n'
        "(APIServer pid=1) OSError: [Errno 98] Address already in use\n"
    )
    diagnosis = TriageCollector().collect(Context(Redactor(), log=FileLog(log)))["diagnosis"].value
    assert diagnosis["stage"] == "api_ready"
    assert diagnosis["family"] == "port_in_use"
    context = TriageCollector().collect(Context(Redactor(), log=FileLog(log)))["context"].value
    assert [each["line_no"] for each in context] == [1, 2, 3, 4]
    assert context[-1]["text"].endswith("Address already in use")


def test_a_daemon_that_stops_in_the_middle_leaves_what_was_read(tmp_path: Path) -> None:
    class Stopping:
        name, size = "container prod", None

        def chunks(self, begin: int = 0) -> Iterator[bytes]:
            yield b"first\nsecond\n"
            raise DockerUnavailable("Docker does not answer: stopped", "is it running?")

    facts = capture(Context(Redactor(), log=Stopping(), folder=tmp_path), [LogCollector(), TriageCollector()])
    assert copied(tmp_path) == b"first\nsecond\n"
    reason = "only the first 13 bytes: Docker does not answer: stopped is it running?"
    assert facts.fact("log.copy") == Fact.measured(COPY_NAME, reason)
    assert "Docker does not answer" in facts.missing["triage.diagnosis"]
