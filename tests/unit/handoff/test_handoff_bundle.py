"""The archive: same inputs same bytes, safe names, sums that hold, nothing overwritten, no secret out."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from repro.errors import InvalidFile, SecretFound, UsageError
from repro.handoff.bundle import Bundle, write_bundle
from repro.redact.redactor import Redactor

TOKEN = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9c"


def bundle(session: Any, target: Path, redactor: Redactor | None = None) -> Bundle:
    return write_bundle(session.folder, session.events, session.scene, redactor or Redactor(), target)


def unpacked(path: Path, into: Path) -> Path:
    with tarfile.open(path) as tar:
        tar.extractall(into)  # noqa: S202  our own archive; its names are what the test before this looks at
    (top,) = into.iterdir()
    return top


def test_two_builds_give_equal_bytes(any_session: tuple[str, Any], tmp_path: Path) -> None:
    _, session = any_session
    one = bundle(session, tmp_path / "one.tar.gz")
    two = bundle(session, tmp_path / "two.tar.gz")
    assert one.path.read_bytes() == two.path.read_bytes()
    assert one.sha256 == hashlib.sha256(one.path.read_bytes()).hexdigest()


def test_members_lie_below_one_folder_with_fixed_times_and_owners(found: Any, tmp_path: Path) -> None:
    with tarfile.open(bundle(found, tmp_path / "x.tar.gz").path) as tar:
        members = tar.getmembers()
    names = [m.name for m in members]
    assert names == sorted(names)
    assert {PurePosixPath(n).parts[0] for n in names} == {"long-prompts-20261201-151603"}
    assert all(m.isfile() and not m.name.startswith("/") and ".." not in PurePosixPath(m.name).parts for m in members)
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 1796138163)}
    assert {m.name.rsplit(".", 1)[1] for m in members if m.mode == 0o755} == {"sh"}


def test_sums_and_manifest_hold(any_session: tuple[str, Any], tmp_path: Path) -> None:
    outcome, session = any_session
    top = unpacked(bundle(session, tmp_path / "x.tar.gz").path, tmp_path / "out")
    lines = (top / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = {p.relative_to(top).as_posix(): p for p in top.rglob("*") if p.is_file()}
    assert set(sums) == set(files) - {"SHA256SUMS"}
    assert all(hashlib.sha256(files[name].read_bytes()).hexdigest() == digest for name, digest in sums.items())
    manifest = json.loads((top / "manifest.json").read_text())
    assert (manifest["schema"], manifest["outcome"], manifest["rerun"]) == ("repro/bundle", outcome, None)
    assert {f["path"] for f in manifest["files"]} == set(files) - {"SHA256SUMS", "manifest.json"}
    assert all(f["bytes"] == files[f["path"]].stat().st_size for f in manifest["files"])


def test_the_journal_and_the_bodies_are_the_sessions_own(found: Any, tmp_path: Path) -> None:
    top = unpacked(bundle(found, tmp_path / "x.tar.gz").path, tmp_path / "out")
    events = [json.loads(line) for line in (top / "session.jsonl").read_text().splitlines()]
    assert events == found.events
    (pair, *_) = events[-1]["findings"][0]["proof"]
    kept = json.loads(gzip.decompress((found.folder / "requests" / f"{pair['failing_trial']}.json.gz").read_bytes()))
    assert json.loads((top / "request.json").read_text()) == kept["bodies"][0]
    assert (top / "failing-command.txt").read_text() != (top / "minimal-command.txt").read_text()


def test_nothing_is_overwritten(found: Any, tmp_path: Path) -> None:
    target = tmp_path / "mine.tar.gz"
    target.write_text("mine")
    with pytest.raises(InvalidFile, match="is there already"):
        bundle(found, target)
    assert target.read_text() == "mine"
    with pytest.raises(InvalidFile, match="cannot be written"):
        bundle(found, tmp_path / "absent" / "x.tar.gz")


def test_a_secret_in_a_log_stops_the_bundle(found: Any, tmp_path: Path) -> None:
    pair = found.events[-1]["findings"][0]["proof"][0]
    log = next(
        e["log"] for e in found.events if e["event"] == "finished" and e["answer"]["trial"] == pair["passing_trial"]
    )
    (found.folder / "logs" / log).write_bytes(gzip.compress(f"INFO one\nINFO logged in with {TOKEN}\n".encode()))
    with pytest.raises(SecretFound, match=rf"logs/{log}, line 2, holds a secret \(rule hf_token\)"):
        bundle(found, tmp_path / "x.tar.gz")
    assert not (tmp_path / "x.tar.gz").exists()


def test_a_secret_of_the_environment_stops_the_bundle_wherever_it_stands(found: Any, tmp_path: Path) -> None:
    found.events[1]["reason"] = "correct horse battery"
    with pytest.raises(SecretFound, match=r"session\.jsonl, line 2, holds a secret \(rule my_password\)"):
        bundle(found, tmp_path / "x.tar.gz", Redactor({"MY_PASSWORD": "correct horse battery"}))
    assert list(tmp_path.glob("*.tar.gz")) == []


def test_a_secret_in_a_kept_body_is_masked_and_the_report_says_so(found: Any, tmp_path: Path) -> None:
    for file in (found.folder / "requests").iterdir():
        body = {"model": "m", "prompt": f"my token is {TOKEN}"}
        kept = {"path": "/v1/completions", "at_once": 1, "bodies": [body], "omitted": 3}
        file.write_bytes(gzip.compress(json.dumps(kept).encode()))
    top = unpacked(bundle(found, tmp_path / "x.tar.gz").path, tmp_path / "out")
    assert "***masked:hf_token:1***" in json.loads((top / "request.json").read_text())["prompt"]
    assert all(TOKEN.encode() not in p.read_bytes() for p in top.rglob("*") if p.is_file())
    report = (top / "REPORT.md").read_text()
    assert "A secret in a body was masked" in report
    assert "3 further bodies were sent and not kept" in report


def test_without_kept_bodies_the_command_that_builds_them_is_named(found: Any, tmp_path: Path) -> None:
    for file in (found.folder / "requests").iterdir():
        file.unlink()
    top = unpacked(bundle(found, tmp_path / "x.tar.gz").path, tmp_path / "out")
    failing = found.events[-1]["findings"][0]["variables"][0]["failing"]
    assert f"repro run --input-tokens {failing} --max-tokens 8 -- " in (top / "REPORT.md").read_text()
    assert not (top / "curl.sh").exists()


def test_broken_inputs_are_named(found: Any, tmp_path: Path) -> None:
    pair = found.events[-1]["findings"][0]["proof"][0]
    kept = found.folder / "requests" / f"{pair['failing_trial']}.json.gz"
    kept.write_bytes(b"not gzip")
    with pytest.raises(InvalidFile, match="is no kept request"):
        bundle(found, tmp_path / "x.tar.gz")
    kept.unlink()
    for log in (found.folder / "logs").iterdir():
        log.write_bytes(log.read_bytes()[:-9])
    with pytest.raises(InvalidFile, match="cannot be read"):
        bundle(found, tmp_path / "x.tar.gz")
    assert list(tmp_path.glob("*.tar.gz")) == []


def test_a_session_that_has_tried_nothing_is_refused(found: Any, tmp_path: Path) -> None:
    begun = replace(found, events=found.events[:2])
    with pytest.raises(UsageError, match="has finished no trial"):
        bundle(begun, tmp_path / "x.tar.gz")


def test_a_session_that_was_interrupted_says_so(found: Any, tmp_path: Path) -> None:
    upto = next(n for n, e in enumerate(found.events) if e["event"] == "finished") + 1
    top = unpacked(bundle(replace(found, events=found.events[:upto]), tmp_path / "x.tar.gz").path, tmp_path / "out")
    assert "**UNFINISHED" in (top / "REPORT.md").read_text()
    assert json.loads((top / "manifest.json").read_text())["outcome"] is None
