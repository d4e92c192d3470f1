"""The search for lines that may matter must never change an answer: against reading every line, on everything at hand."""

# ruff: noqa: E501 (log lines stand here as programs print them)
from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.triage import Diagnosis, ExitEvidence, Triage, shipped_table
from repro.triage.literals import Literals

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
LOGS = [path.read_bytes() for path in sorted((HERE / "logs").glob("*.log"))] + [
    case["log"].encode() for case in tomllib.loads((HERE / "unseen.toml").read_text(encoding="utf-8"))["case"]
]
TABLE = shipped_table()
EXAMPLES = [row.example for rows in (TABLE.markers, TABLE.patterns, TABLE.consequences, TABLE.harmless) for row in rows]
QUIET = [
    "(EngineCore pid=7) DEBUG 12-01 13:35:58 [core.py:7] step {n} took 0.0{n} s",
    "(Worker_TP0 pid=9) INFO 12-01 13:35:58 [gpu_worker.py:9] nothing of note, round {n}",
    "node7:5001:6001 [1] NCCL INFO Channel 0{n} : 1[1] -> 2[2] via P2P/CUMEM",
    "a line of nobody, number {n}",
    "INFO:     10.0.0.1:{n} - \"GET /metrics HTTP/1.1\" 200 OK",
    "\rLoading: {n}%",
]  # fmt: skip
START = "(APIServer pid=1) INFO 12-01 13:35:50 [model.py:733] Resolved architecture: Qwen3ForCausalLM\n"


def both(raw: bytes, monkeypatch: pytest.MonkeyPatch, exit_: ExitEvidence | None = None) -> list[Diagnosis]:
    answers = []
    for usable in (True, False):
        with monkeypatch.context() as patch:
            if not usable:
                patch.setattr(Literals, "usable", False)
            reading = Triage()
            reading.feed(raw)
            reading.finish()
            answers.append(reading.diagnose(exit_))
    return answers


@pytest.fixture(scope="module", autouse=True)
def automaton() -> None:
    if not Literals(TABLE).usable:
        pytest.skip("without ahocorasick_rs every line is read")


@pytest.mark.parametrize("index", range(len(LOGS)))
def test_the_search_changes_no_answer(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for exit_ in (None, ExitEvidence(1), ExitEvidence()):
        searched, read = both(LOGS[index], monkeypatch, exit_)
        assert searched == read


@pytest.mark.parametrize("index", range(0, len(LOGS), 3))
def test_quiet_lines_between_all_others_change_no_answer(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(index)
    lines = LOGS[index].split(b"\n")
    mixed = [part for n, line in enumerate(lines) for part in (line, chance.choice(QUIET).format(n=n % 10).encode())]
    searched, read = both(b"\n".join(mixed), monkeypatch)
    assert searched == read


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["", "(EngineCore pid=7) ERROR 12-01 13:36:00 [core.py:9] ", "vllm-1 | "]), st.sampled_from([*EXAMPLES, *QUIET, "Traceback (most recent call last):"])), max_size=60))  # fmt: skip
def test_shuffled_true_lines_get_the_same_answer(parts: list[tuple[str, str]]) -> None:
    raw = (START + "\n".join(prefix + words for prefix, words in parts)).encode()
    with pytest.MonkeyPatch.context() as patch:
        searched, read = both(raw, patch)
    assert searched == read


def test_every_example_is_found_by_its_texts() -> None:
    texts = Literals(TABLE)
    lines = [b"before", *(example.encode() for example in EXAMPLES), b"behind"]
    hits = [index for index, _, _, _ in texts.find(lines)]
    assert hits == sorted(set(hits))
    by_frames = {row.example for row in TABLE.patterns if row.example_frame}  # found by their traceback
    assert {n for n, example in enumerate(EXAMPLES, 1) if example not in by_frames} <= set(hits)
    assert 0 not in hits
    assert len(lines) - 1 not in hits


def test_a_line_of_json_and_an_empty_block_are_found() -> None:
    texts = Literals(TABLE)
    assert texts.find([]) == []
    assert texts.find([b"", b"quiet"]) == []
    assert [index for index, _, _, _ in texts.find([b'{"log":"x"}', b"quiet", b"", b'{"msg":"y"}'])] == [0, 3]
