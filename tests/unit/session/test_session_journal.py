"""The journal survives what cuts it short and never believes what something else wrote into it."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from repro.errors import InvalidFile, JournalNotWritten
from repro.session.journal import Journal, read


class Clock:
    def now(self) -> float:
        return 1_700_000_000.5


def test_events_come_back_in_order_with_their_facts(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j.jsonl", Clock())
    journal.append("session", name="한국어")
    journal.append("ask", trials=[1, 2])
    journal.close()
    again = Journal(tmp_path / "j.jsonl", Clock())
    assert [e["event"] for e in again.events] == ["session", "ask"]
    assert again.events[0]["name"] == "한국어"
    again.append("finished")
    again.close()
    assert [e["n"] for e in read(tmp_path / "j.jsonl")[0]] == [0, 1, 2]


@pytest.mark.parametrize("kept", range(1, 40, 7))
def test_a_cut_last_line_is_forgotten_wherever_the_cut_is(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "j.jsonl"
    journal = Journal(path, Clock())
    journal.append("session")
    whole = path.stat().st_size
    journal.append("ask", trials=["0123456789" * 3])
    journal.close()
    with path.open("r+b") as file:
        file.truncate(whole + kept)
    again = Journal(path, Clock())
    assert [e["event"] for e in again.events] == ["session"]
    again.append("finished")
    again.close()
    assert [e["event"] for e in read(path)[0]] == ["session", "finished"]


def test_a_broken_line_in_the_middle_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    path.write_text('{"n":0,"event":"session"}\nnonsense\n{"n":2,"event":"ask"}\n')
    with pytest.raises(InvalidFile, match="line 2") as seen:
        read(path)
    assert seen.value.exit_code == 2


def test_a_full_disk_keeps_everything_before_and_can_go_on_later(tmp_path: Path) -> None:
    """A file size limit makes the kernel refuse in the middle of a line, as a full disk does."""
    path = tmp_path / "j.jsonl"
    journal = Journal(path, Clock())
    journal.append("session")
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, limits[1]))
    try:
        with pytest.raises(JournalNotWritten, match="cannot be written") as seen:
            journal.append("ask", trials=["x" * 500])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "--resume" in seen.value.hint
    assert seen.value.exit_code == 125
    assert [e["event"] for e in read(path)[0]] == ["session"]
    journal.append("ask", trials=[])
    journal.close()
    assert [e["event"] for e in read(path)[0]] == ["session", "ask"]


@pytest.mark.parametrize("call", ["write", "fsync"])
def test_an_interrupt_in_the_middle_of_an_event_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Ctrl-C after the line was written and before it was counted: the next event must not get the same number."""
    path = tmp_path / "j.jsonl"
    journal = Journal(path, Clock())
    journal.append("session")
    real = getattr(os, call)

    def interrupted(*arguments: object) -> None:
        real(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.append("ask", trials=["0123456789"])
    assert [e["event"] for e in journal.events] == ["session"]
    journal.append("interrupted")
    journal.close()
    assert [(e["n"], e["event"]) for e in read(path)[0]] == [(0, "session"), (1, "interrupted")]
