"""Logs triage was not written from, in the shapes of many releases and wrappers, however they are cut up."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from repro.triage import Triage, triage_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "unseen.toml").read_text(encoding="utf-8"))["case"]


@pytest.fixture(params=CASES, ids=[case["name"] for case in CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


def holds(line: str, words: str) -> bool:
    return line.endswith(words[:-1]) if words.endswith("$") else words in line


def test_names_stage_family_and_root(case: dict[str, Any]) -> None:
    answer = triage_text(case["log"])
    fair = {f"{case['stage']}/{case['family']}", *case.get("alt", [])}
    assert f"{answer.stage}/{answer.family or ''}" in fair, answer
    assert answer.is_vllm_log
    if not case["root"]:
        assert answer.root_line is None
        return
    lines = case["log"].split("\n")
    roots = (case["root"], *case.get("alt_root", []))
    firsts = {next((n for n, line in enumerate(lines, 1) if holds(line, words)), 0) for words in roots}
    assert answer.root_line_no in firsts, answer


@pytest.mark.parametrize("size", [1, 17, 4096])
def test_every_chunking_gives_the_same_answer(case: dict[str, Any], size: int) -> None:
    raw = case["log"].encode()
    pieces = Triage()
    for start in range(0, len(raw), size):
        pieces.feed(raw[start : start + size])
    pieces.finish()
    assert pieces.diagnose() == triage_text(raw)


def test_windows_line_ends_change_nothing_but_the_line_end(case: dict[str, Any]) -> None:
    plain, windows = triage_text(case["log"]), triage_text(case["log"].replace("\n", "\r\n"))
    assert (windows.stage, windows.family, windows.root_line_no) == (plain.stage, plain.family, plain.root_line_no)


@pytest.mark.parametrize(
    "coat",
    [
        "2025-10-18T03:20:36.866067958Z ",
        "2025-10-18T03:20:36.866067958-07:00 ",
        "2025-10-18T03:20:36.866067958Z stderr F ",
        "vllm-1  | ",
        "[vllm] | ",
        "[pod/kimi-0/vllm] ",
        "[2025-10-18T03:20:36.866Z] ",
        "Oct 18 03:20:36 node7 vllm[4711]: ",
        "2025-10-18T03:20:36.866067958Z vllm-1  | ",
    ],
)
def test_coats_of_container_tools_change_nothing(case: dict[str, Any], coat: str) -> None:
    if case["log"].startswith("{"):
        coat = ""  # a JSON record stands on its line alone
    plain = triage_text(case["log"])
    coated = triage_text("".join(f"{coat}{line}\n" for line in case["log"].splitlines()))
    assert (coated.stage, coated.family, coated.root_line_no) == (plain.stage, plain.family, plain.root_line_no)


def test_colours_change_nothing(case: dict[str, Any]) -> None:
    plain = triage_text(case["log"])
    coloured = triage_text(case["log"].replace("(Engine", "\x1b[0;36m(Engine").replace("pid=59)", "pid=59)\x1b[0;0m"))
    assert (coloured.stage, coloured.family, coloured.root_line_no) == (plain.stage, plain.family, plain.root_line_no)
