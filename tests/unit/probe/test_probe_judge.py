from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.domain.failure import Family
from repro.domain.request import Expectation
from repro.domain.stage import Stage
from repro.probe.answer import HttpAnswer, NetworkFault
from repro.probe.judge import judge
from repro.probe.reading import ToolCall, read

Chat = Callable[..., HttpAnswer]
PLAIN = Expectation()


def sse(*events: object, done: bool = True) -> HttpAnswer:
    lines = [f"data: {json.dumps(e)}\n\n" for e in events] + (["data: [DONE]\n\n"] if done else [])
    return HttpAnswer(200, "".join(lines), streamed=True)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def family(expectation: Expectation, answer: HttpAnswer) -> Family | None:
    miss = judge(expectation, answer)
    return None if miss is None else miss.family


def test_a_good_answer_is_no_miss(chat: Chat) -> None:
    assert judge(PLAIN, chat("Paris.")) is None
    assert judge(PLAIN, chat("", reasoning="thinking")) is None
    assert judge(PLAIN, chat("", reasoning_content="thinking")) is None


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (NetworkFault.TIMEOUT, Family.TIMEOUT),
        (NetworkFault.REFUSED, Family.ENGINE_DEAD),
        (NetworkFault.RESET, Family.ENGINE_DEAD),
        (NetworkFault.OTHER, Family.HTTP_ERROR),
    ],
)
def test_a_broken_exchange_has_the_family_of_its_break(fault: NetworkFault, expected: Family) -> None:
    assert family(PLAIN, HttpAnswer(None, fault=fault)) is expected


def test_a_late_answer_is_a_timeout() -> None:
    late = HttpAnswer(200, json.dumps({"choices": [{"message": {"content": "x"}}]}), seconds=11)
    assert family(Expectation(deadline_s=10), late) is Family.TIMEOUT
    assert family(Expectation(deadline_s=12), late) is None


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (400, "This model's maximum context length is 1024 tokens. However, you requested 2000", Family.CONTEXT_LENGTH),
        (400, "'max_tokens' or 'max_completion_tokens' is too large: 4096. At most 1000", Family.CONTEXT_LENGTH),
        (400, "The prompt has 24050 characters (more than 13312 characters)", Family.CONTEXT_LENGTH),
        (400, '"auto" tool choice requires --enable-auto-tool-choice', Family.HTTP_ERROR),
        (404, "The model `x` does not exist.", Family.HTTP_ERROR),
        (500, "EngineCore encountered an issue. See stack trace", Family.ENGINE_DEAD),
        (500, "EngineDeadError", Family.ENGINE_DEAD),
        (500, "Internal Server Error", Family.HTTP_ERROR),
    ],
)
def test_http_errors_are_told_apart_by_their_text(status: int, text: str, expected: Family) -> None:
    miss = judge(PLAIN, HttpAnswer(status, json.dumps({"error": {"message": text, "code": status}})))
    assert miss is not None
    assert miss.family is expected
    assert str(status) in miss.detail


def test_an_expected_error_is_no_miss() -> None:
    assert judge(Expectation(status=400), HttpAnswer(400, "{}")) is None
    assert family(Expectation(status=400), HttpAnswer(200, "{}")) is Family.HTTP_ERROR


def test_an_error_event_inside_a_200_stream_is_a_miss() -> None:
    error = {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", "code": 500}}
    assert family(PLAIN, sse(delta(content="a"), error)) is Family.ENGINE_DEAD
    assert family(PLAIN, sse(delta(content="a"), {"error": {"message": "bad"}})) is Family.HTTP_ERROR


def test_a_stream_without_its_end_is_a_miss() -> None:
    assert family(PLAIN, sse(delta(content="a"), done=False)) is Family.HTTP_ERROR
    assert judge(PLAIN, sse(delta(content="a"))) is None


@pytest.mark.parametrize("marker", ["<|open|>", "<|close|>", "<|tool_calls_section_begin|>", "<tool_call>", "</think>"])
def test_leaked_markers_are_bad_output(chat: Chat, marker: str) -> None:
    assert family(PLAIN, chat(f"a {marker} b")) is Family.BAD_OUTPUT
    assert family(PLAIN, chat("", reasoning=f"a {marker} b")) is Family.BAD_OUTPUT
    assert judge(Expectation(no_markers=False), chat(f"a {marker} b")) is None


def test_empty_and_endless_are_bad_output(chat: Chat) -> None:
    assert family(PLAIN, chat("")) is Family.BAD_OUTPUT
    assert family(PLAIN, chat("Sure. " + "!" * 40)) is Family.BAD_OUTPUT
    assert family(PLAIN, chat(" the" * 40)) is Family.BAD_OUTPUT
    assert judge(PLAIN, chat("-" * 10 + " table " + "ab" * 5)) is None
    assert judge(Expectation(not_empty=False, no_endless_token=False), chat("")) is None


@given(st.lists(st.text(min_size=3, max_size=9, alphabet="abcdefghij"), min_size=5, max_size=60, unique=True))
def test_different_words_are_never_called_endless(words: list[str]) -> None:
    body = {"choices": [{"message": {"content": " ".join(words)}, "finish_reason": "stop"}]}
    assert judge(PLAIN, HttpAnswer(200, json.dumps(body))) is None


@pytest.mark.parametrize(
    ("calls", "good"),
    [
        ([], False),
        ([{"function": {"name": "f", "arguments": '{"a": 1}'}}], True),
        ([{"function": {"name": "", "arguments": "{}"}}], False),
        ([{"function": {"name": "f", "arguments": '{"a": '}}], False),
        ([{"function": {"name": "f", "arguments": "[]"}}], False),
    ],
)
def test_a_tool_call_must_have_a_name_and_an_object(chat: Chat, calls: list[Any], good: bool) -> None:
    expectation = Expectation(tool_call=True)
    assert family(expectation, chat("", tool_calls=calls)) is (None if good else Family.BAD_OUTPUT)


def test_finish_reasons_are_held_to(chat: Chat) -> None:
    assert judge(Expectation(finish_reasons=("stop",)), chat("x")) is None
    miss = judge(Expectation(finish_reasons=("length", "tool_calls")), chat("x"))
    assert miss is not None
    assert "length or tool_calls" in miss.detail


def test_a_miss_becomes_a_failure_of_serving(chat: Chat) -> None:
    miss = judge(PLAIN, chat(""))
    assert miss is not None
    failure = miss.failure(reached=(Stage.API_READY,))
    assert (failure.stage, failure.family, failure.root_line) == (Stage.SERVING, Family.BAD_OUTPUT, None)


def test_streamed_tool_calls_are_put_together() -> None:
    first = delta(tool_calls=[{"index": 0, "function": {"name": "weather", "arguments": ""}}])
    rest = [delta(tool_calls=[{"index": 0, "function": {"arguments": piece}}]) for piece in ('{"ci', 'ty": "Rome"}')]
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": None}}
    said = read(sse(delta(reasoning="hm"), first, *rest, delta(finish="tool_calls"), usage))
    assert said.tool_calls == (ToolCall("weather", '{"city": "Rome"}'),)
    assert (said.reasoning, said.finish_reason, said.prompt_tokens, said.completion_tokens) == (
        "hm",
        "tool_calls",
        7,
        3,
    )


@given(st.text(max_size=200), st.booleans())
def test_reading_never_raises(text: str, streamed: bool) -> None:
    answer = HttpAnswer(200, text, streamed=streamed)
    assert read(answer).content == "" or "choices" in text
    judge(PLAIN, answer)


def test_an_excerpt_shows_where_the_news_is() -> None:
    assert HttpAnswer(500, "a\n  b").excerpt() == "a b"
    assert HttpAnswer(200, "x" * 500).excerpt(10) == "x" * 9 + "…"
    assert HttpAnswer(200, "x" * 500 + " error", streamed=True).excerpt(10) == "…" + "xxx error"
    assert HttpAnswer(None, fault=NetworkFault.RESET, detail="by peer").excerpt() == "reset: by peer"
