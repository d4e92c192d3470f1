"""The request that failed: masked, measured in what can be measured, and honest about the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context
from repro.snapshot.request import RequestCollector, count_characters, count_token_ids

CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "abc"}, {"role": "user", "content": [{"type": "text", "text": "de"}]}],
    "max_tokens": 5,
    "max_completion_tokens": 7,
    "user": "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0",
}


def collect(body: Mapping[str, Any] | None, **more: Any) -> dict[str, Fact]:
    return dict(RequestCollector().collect(Context(Redactor(), request=body, **more)))


def test_a_chat_request() -> None:
    facts = collect(CHAT, concurrency=4, count_tokens=lambda _: 42)
    assert set(facts) == set(RequestCollector.fields)
    assert facts["input_tokens"].value == 42
    assert "/tokenize" in facts["input_tokens"].reason
    assert facts["input_characters"].value == 5
    assert facts["output_limit"].value == 7
    assert facts["concurrency"].value == 4
    assert "sets none" in facts["temperature"].reason
    assert facts["body"].value["user"].startswith("***masked:")


def test_token_ids_are_counted_here() -> None:
    assert collect({"prompt": [5, 6, 7]})["input_tokens"].value == 3
    assert collect({"prompt": [[5], [6, 7]]})["input_tokens"].value == 2
    assert count_token_ids("text") is None
    assert count_token_ids([]) is None
    assert count_characters({"prompt": "four", "tools": []}) == 4


def test_nobody_to_count_is_said() -> None:
    def refuses(body: Mapping[str, Any]) -> int:
        raise LookupError("the input is text, and no server counts it: refused")

    assert "no server counts it" in collect(CHAT, count_tokens=refuses)["input_tokens"].reason
    assert "no server that could count" in collect(CHAT)["input_tokens"].reason
    assert "--request" in collect(None)["body"].reason


@pytest.mark.parametrize(
    "body", [{}, {"messages": None}, {"messages": ["odd"], "prompt": None}, {"prompt": ["a", "b"]}]
)
def test_an_odd_body_costs_nothing(body: dict[str, Any]) -> None:
    assert collect(body)["body"].value == body
