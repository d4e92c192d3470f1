"""What is no vLLM log is said to be none, and nothing whatever makes triage stumble."""

# ruff: noqa: E501 (log lines stand here as programs print them)
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.domain.stage import Stage
from repro.triage import Diagnosis, first_failing, triage_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
OTHERS: list[dict[str, Any]] = tomllib.loads((HERE / "others.toml").read_text(encoding="utf-8"))["log"]
TRUE = [case["log"].encode() for case in tomllib.loads((HERE / "unseen.toml").read_text(encoding="utf-8"))["case"]] + [
    path.read_bytes()[:20_000] for path in sorted((HERE / "logs").glob("*.log"))
]


def sound(answer: Diagnosis, raw: bytes) -> None:
    lines = raw.split(b"\n")
    assert json.dumps(answer.as_json())
    assert (answer.stage is Stage.NONE) == (answer.family is None)
    assert answer.root_line_no not in answer.consequences
    assert all(1 <= number <= len(lines) for number in answer.consequences)
    assert answer.is_vllm_log or answer.note
    if answer.root_line_no is not None:
        assert answer.root_line == lines[answer.root_line_no - 1].decode("utf-8", "replace")


@pytest.mark.parametrize("log", OTHERS, ids=[log["name"] for log in OTHERS])
def test_logs_of_other_programs(log: dict[str, Any]) -> None:
    answer = triage_text(log["text"])
    assert not answer.is_vllm_log
    assert (answer.stage, answer.family, answer.root_line) == (Stage.NONE, None, None)
    assert "not the log of a vLLM server" in answer.note


@pytest.mark.parametrize("log", OTHERS, ids=[log["name"] for log in OTHERS])
def test_their_lines_behind_a_healthy_server_are_read_without_harm(log: dict[str, Any]) -> None:
    head = b"(APIServer pid=1) INFO 12-01 13:35:46 [api_server.py:1] vLLM API server version 0.10.2\nINFO:     Application startup complete.\n"
    raw = head + log["text"].encode()
    sound(triage_text(raw), raw)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(TRUE), st.data())
def test_a_log_with_parts_cut_out_turned_round_and_overwritten_never_raises(raw: bytes, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(raw)))
    end = data.draw(st.integers(start, min(len(raw), start + 500)))
    rubbish = data.draw(st.binary(max_size=60))
    broken = raw[:start] + rubbish + raw[end:]
    if data.draw(st.booleans()):
        lines = broken.split(b"\n")
        chance = data.draw(st.randoms(use_true_random=False))
        chance.shuffle(lines)
        broken = b"\n".join(lines)
    sound(triage_text(broken), broken)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=2000))
def test_any_text_gets_an_answer(text: str) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    sound(triage_text(raw), raw)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(TRUE), min_size=1, max_size=4), st.data())
def test_any_logs_together_get_an_answer_that_is_one_of_theirs(raws: list[bytes], data: st.DataObject) -> None:
    cut = [raw[: data.draw(st.integers(0, len(raw)))] for raw in raws]
    group = first_failing([(f"node{number}", triage_text(raw)) for number, raw in enumerate(cut)])
    assert json.dumps(group.as_json())
    failed = [member for member in group.members if member.diagnosis.stage is not Stage.NONE]
    assert (group.root in failed) if failed else group.root is None


@pytest.mark.parametrize("level", ["error", "ERROR", 40, None, {"a": 1}])
@pytest.mark.parametrize("key", ["log", "message", "msg", "text", "event"])
def test_a_cause_inside_json_is_found_with_whatever_level(key: str, level: object) -> None:
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    head = json.dumps({key: "INFO 12-01 13:35:46 [api_server.py:1] vLLM API server version 0.10.2"})
    line = json.dumps({key: f"ERROR 12-01 13:35:47 [core.py:1] {words}", "level": level, "time": "t"})
    answer = triage_text(f"{head}\n{line}\n")
    assert answer.family is not None
    assert (answer.family.value, answer.root_line_no, answer.vllm_version) == ("oom_gpu", 2, "0.10.2")


def test_lines_of_ten_megabytes_before_and_behind_the_cause() -> None:
    long = b"x" * (10 << 20) + b"\n"
    head = b"(APIServer pid=1) INFO 12-01 13:35:46 [api_server.py:1] vLLM API server version 0.10.2\n"
    cause = b"(Worker pid=3) ERROR 12-01 13:35:47 [w.py:1] torch.OutOfMemoryError: CUDA out of memory.\n"
    answer = triage_text(long + head + long + cause + long)
    assert answer.family is not None
    assert (answer.family.value, answer.root_line_no) == ("oom_gpu", 4)
