"""What stays of logs and requests: whole, masked, line for line, and never a raw file beside it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from repro.domain.request import CHAT, Expectation, Request, RequestSet
from repro.redact.redactor import Redactor
from repro.trial import keep
from repro.trial.keep import KeptRequests, MaskedLogs


@pytest.fixture
def redactor(secret: str) -> Redactor:
    return Redactor({"HF_TOKEN": secret})


def document(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return loaded


def request_set(count: int, text: str = "hello") -> RequestSet:
    bodies = [{"messages": [{"role": "user", "content": f"{text} {n}"}]} for n in range(count)]
    return RequestSet(tuple(Request.of(CHAT, body) for body in bodies), 2, Expectation())


def test_a_log_is_kept_line_for_line_with_its_secrets_masked(tmp_path: Path, redactor: Redactor, secret: str) -> None:
    raw = tmp_path / "server-001.log"
    raw.write_bytes(b"one\r\ntwo \xff\n" + f"HF_TOKEN={secret}\n".encode() * 3 + b"a\rb\nlast without an end")
    lines = raw.read_bytes().count(b"\n")
    kept = MaskedLogs(redactor)(raw)
    assert kept.name == "server-001.log.gz"
    text = gzip.decompress(kept.read_bytes())
    assert text.count(b"\n") == lines, "line numbers are what a root line is named by"
    assert text.startswith(b"one\r\ntwo ")
    assert text.endswith(b"a\rb\nlast without an end")
    assert secret.encode() not in text
    assert b"***masked" in text
    assert not raw.exists()


def test_equal_logs_give_equal_bytes(tmp_path: Path, redactor: Redactor) -> None:
    kept = []
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("the same\n")
        kept.append(MaskedLogs(redactor)(tmp_path / name).read_bytes())
    assert kept[0] == kept[1]


def test_a_log_that_was_never_written_is_no_fault(tmp_path: Path, redactor: Redactor) -> None:
    assert not MaskedLogs(redactor)(tmp_path / "none.log").exists()


def test_keeping_that_was_cut_short_is_done_again_from_the_raw_log(
    tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "server-001.log"
    raw.write_text("one\ntwo\n")

    def full(_self: gzip.GzipFile, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(gzip.GzipFile, "write", full)
        with pytest.raises(OSError, match="No space"):
            MaskedLogs(redactor)(raw)
    assert raw.read_text() == "one\ntwo\n"
    assert gzip.decompress(MaskedLogs(redactor)(raw).read_bytes()) == b"one\ntwo\n"


def test_requests_are_kept_in_order_and_masked(tmp_path: Path, redactor: Redactor, secret: str) -> None:
    KeptRequests(tmp_path / "requests", redactor)("abc-0", request_set(3, f"my token is {secret}"))
    kept = document(tmp_path / "requests" / "abc-0.json.gz")
    assert (kept["path"], kept["at_once"], kept["omitted"]) == (CHAT, 2, 0)
    contents = [body["messages"][0]["content"] for body in kept["bodies"]]
    assert [content[-1] for content in contents] == ["0", "1", "2"]
    assert secret not in json.dumps(kept)


def test_many_large_requests_are_counted_and_not_kept(
    tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "MOST_BYTES", 150)
    KeptRequests(tmp_path / "requests", redactor)("abc-0", request_set(9))
    kept = document(tmp_path / "requests" / "abc-0.json.gz")
    assert kept["omitted"] > 0
    assert len(kept["bodies"]) + kept["omitted"] == 9


def test_the_first_request_is_kept_however_large(
    tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keep, "MOST_BYTES", 1)
    KeptRequests(tmp_path, redactor)("abc-0", request_set(2))
    assert len(document(tmp_path / "abc-0.json.gz")["bodies"]) == 1


def test_requests_of_an_earlier_try_are_not_written_over(tmp_path: Path, redactor: Redactor) -> None:
    kept = KeptRequests(tmp_path, redactor)
    kept("abc-0", request_set(1, "first"))
    kept("abc-0", request_set(1, "second"))
    assert "first" in json.dumps(document(tmp_path / "abc-0.json.gz"))


def test_a_kill_while_requests_are_written_leaves_nothing_that_looks_whole(
    tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_self: gzip.GzipFile, _data: bytes) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(gzip.GzipFile, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            KeptRequests(tmp_path, redactor)("abc-0", request_set(1))
    KeptRequests(tmp_path, redactor)("abc-0", request_set(1))
    assert len(document(tmp_path / "abc-0.json.gz")["bodies"]) == 1
