from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.domain.request import CHAT, COMPLETIONS, Expectation, Request, RequestSet, RequestShape
from repro.probe.answer import HttpAnswer
from repro.probe.fit import TRIES, Unfit, fit
from repro.probe.prompt import CannotBuild, build
from repro.probe.text import words
from repro.probe.tokens import CannotCount, HttpTokenizer

FRAME = 9


def pieces(text: str) -> int:
    """Like real tokenizers: words in pieces of four letters, blanks joined to the word, wide characters as bytes."""
    return sum(max(1, len(p.encode()) - len(p) + 1) for p in re.findall(r" ?[a-z]{1,4}|.", text, re.DOTALL))


class PieceTokenizer:
    def __init__(self) -> None:
        self.asked = 0

    def count(self, body: dict[str, Any]) -> int:
        self.asked += 1
        if "prompt" in body:
            return pieces(body["prompt"]) + 1
        told = json.dumps([m["content"] for m in body["messages"][:-1]]) + json.dumps(body.get("tools", ""))
        content = body["messages"][-1]["content"]
        last = content if isinstance(content, str) else "".join(p.get("text", "") for p in content)
        return FRAME + pieces(told) + pieces(last)


def built(shape: RequestShape, **more: Any) -> RequestSet:
    made = build(shape, PieceTokenizer(), "served", **more)
    assert isinstance(made, RequestSet), made
    return made


def chat_base(text: Any, **more: Any) -> Request:
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": text}]
    return Request.of(CHAT, {"model": "prod", "messages": messages, "temperature": 0.7, **more})


PROSE = "It was the best of times, it was the worst of times, " + words(3, 300) + " and so on."


@settings(deadline=None)
@given(st.integers(40, 400), st.sampled_from([CHAT, COMPLETIONS]), st.integers(0, 9))
def test_without_a_base_the_length_is_exact(n: int, path: str, seed: int) -> None:
    body = built(RequestShape(path=path, input_tokens=n, seed=seed)).requests[0].body
    assert PieceTokenizer().count(body) == n
    assert (body["temperature"], body["seed"], body["model"]) == (0, seed, "served")


@settings(deadline=None)
@given(st.integers(60, 500))
def test_production_prompt_is_cut_to_its_first_tokens(n: int) -> None:
    body = built(RequestShape(base=chat_base(PROSE), input_tokens=n)).requests[0].body
    text = body["messages"][-1]["content"]
    assert PieceTokenizer().count(body) == n
    assert PROSE.startswith(text)
    assert pieces(text) < pieces(PROSE[: len(text) + 1]), "the last token is whole"
    assert body["messages"][0]["content"] == "You are terse."
    assert body["temperature"] == 0.7


@settings(deadline=None)
@given(st.integers(70, 300), st.integers(2, 6))
def test_concurrent_requests_differ_in_their_tail_at_equal_length(n: int, at_once: int) -> None:
    request_set = built(RequestShape(base=chat_base(PROSE), input_tokens=n, concurrency=at_once))
    texts = [r.body["messages"][-1]["content"] for r in request_set.requests]
    assert request_set.at_once == len(texts) == len(set(texts)) == at_once
    assert {PieceTokenizer().count(r.body) for r in request_set.requests} == {n}
    assert len({t[: len(texts[0]) - 48] for t in texts}) == 1


def test_many_concurrent_prompts_take_few_counts_each() -> None:
    tokenizer = PieceTokenizer()
    made = build(RequestShape(input_tokens=4000, concurrency=64), tokenizer, "served")
    assert isinstance(made, RequestSet)
    assert {PieceTokenizer().count(r.body) for r in made.requests} == {4000}
    assert len({r.body_json for r in made.requests}) == 64
    assert tokenizer.asked < 64 * 6


def test_a_shared_prefix_is_the_same_prompt() -> None:
    request_set = built(RequestShape(input_tokens=80, concurrency=3, shared_prefix=True, repeat=2))
    assert len(request_set.requests) == 6
    assert len(set(request_set.requests)) == 1


def test_repeats_come_in_order() -> None:
    request_set = built(RequestShape(input_tokens=80, concurrency=3, repeat=2))
    assert request_set.requests[:3] == request_set.requests[3:]
    assert len(set(request_set.requests)) == 3


def test_a_base_without_length_stays_whole() -> None:
    base = chat_base(PROSE, max_completion_tokens=9, stream=True, seed=4)
    body = built(RequestShape(base=base, stream=True)).requests[0].body
    expected = {**base.body, "model": "served", "stream_options": {"include_usage": True}}
    assert body == expected


def test_fields_that_a_shape_asks_for() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    shape = RequestShape(
        base=chat_base(PROSE, max_completion_tokens=9, stream=True, tool_choice="required"),
        max_tokens=33,
        reasoning_effort="max",
        tools_json=json.dumps(tools),
        expectation=Expectation(tool_call=True),
    )
    request_set = built(shape, cache_salt="trial-7")
    body = request_set.requests[0].body
    assert body["max_tokens"] == 33
    assert body["tools"] == tools
    assert body["tool_choice"] == "required"
    assert body["reasoning_effort"] == "max"
    assert body["cache_salt"] == "trial-7"
    assert not {"max_completion_tokens", "stream", "stream_options", "ignore_eos"} & set(body)
    assert request_set.expectation.tool_call
    without_base = built(RequestShape(max_tokens=5, tools_json=json.dumps(tools))).requests[0].body
    assert without_base["ignore_eos"] is True
    assert without_base["tool_choice"] == "auto"


def test_the_last_text_part_of_the_last_user_message_is_cut() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "data:x"}}, {"type": "text", "text": PROSE}]
    body = built(RequestShape(base=chat_base(parts), input_tokens=100)).requests[0].body
    assert body["messages"][-1]["content"][0] == parts[0]
    assert PieceTokenizer().count(body) == 100


@pytest.mark.parametrize(
    ("shape", "words_in_reason"),
    [
        (RequestShape(base=chat_base("too short"), input_tokens=900), ("900", "counts")),
        (RequestShape(base=chat_base(PROSE), input_tokens=10), ("10", "nearest")),
        (RequestShape(base=Request.of(COMPLETIONS, {"prompt": [1, 2, 3]}), input_tokens=2), ("no user text",)),
        (RequestShape(base=chat_base(""), concurrency=2), ("2 different",)),
    ],
)
def test_what_cannot_be_built_says_why(shape: RequestShape, words_in_reason: tuple[str, ...]) -> None:
    made = build(shape, PieceTokenizer(), "served")
    assert isinstance(made, CannotBuild)
    for expected in words_in_reason:
        assert expected in made.reason


def test_wide_characters_are_filled_up_to_the_exact_count() -> None:
    text = "日本語" * 50
    for n in range(20, 60):
        fitted = fit(text, n, pieces)
        assert isinstance(fitted, str)
        assert pieces(fitted) == n


@settings(deadline=None)
@given(st.integers(0, 40), st.text(min_size=0, max_size=60))
def test_fit_is_exact_or_says_what_is_nearest(n: int, text: str) -> None:
    fitted = fit(text, n, pieces)
    if isinstance(fitted, Unfit):
        assert fitted.whole == pieces(text)
        assert fitted.whole < n or fitted.nearest != n
    else:
        assert pieces(fitted) == n


def test_a_million_characters_take_few_counts() -> None:
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return len(text) // 4

    text = "x" * 1_000_000
    fitted = fit(text, 123_456, count)
    assert isinstance(fitted, str)
    assert len(fitted) == 123_456 * 4 + 3
    assert len(asked) <= 16 < TRIES


def test_seeded_text_never_repeats_a_word() -> None:
    once = words(0, 50_000).split()
    assert len(set(once)) == len(once)
    assert words(0, 20) == " ".join(once[:20])
    assert words(1, 20) != words(0, 20)
    assert not set(words(0, 100, first=10_000_000).split()) & set(once)


def test_a_server_without_tokenize_is_named() -> None:
    class Without:
        def get(self, path: str, deadline_s: float) -> HttpAnswer:
            return HttpAnswer(404)

        def post(self, path: str, body: dict[str, Any], deadline_s: float) -> HttpAnswer:
            return HttpAnswer(404, '{"detail":"Not Found"}')

    made = build(RequestShape(input_tokens=50), HttpTokenizer(Without()), "m")
    assert isinstance(made, CannotBuild)
    assert "/tokenize" in made.reason
    assert isinstance(build(RequestShape(), HttpTokenizer(Without()), "m"), RequestSet), (
        "no length, no tokenizer needed"
    )


def test_tokenize_is_asked_about_what_shapes_the_prompt() -> None:
    asked: list[dict[str, Any]] = []

    class Counting:
        def get(self, path: str, deadline_s: float) -> HttpAnswer:
            return HttpAnswer(404)

        def post(self, path: str, body: dict[str, Any], deadline_s: float) -> HttpAnswer:
            asked.append({"path": path, **body})
            return HttpAnswer(200, '{"count": 12, "tokens": []}')

    body = {"model": "m", "messages": [], "tools": [1], "temperature": 1, "reasoning_effort": "max", "stream": True}
    assert HttpTokenizer(Counting()).count(body) == 12
    assert asked == [
        {
            "path": "/tokenize",
            "model": "m",
            "messages": [],
            "tools": [1],
            "chat_template_kwargs": {"reasoning_effort": "max"},
        }
    ]
    with pytest.raises(CannotCount, match="500"):
        HttpTokenizer(_Failing()).count({"prompt": "x"})


class _Failing:
    def get(self, path: str, deadline_s: float) -> HttpAnswer:
        return HttpAnswer(500)

    def post(self, path: str, body: dict[str, Any], deadline_s: float) -> HttpAnswer:
        return HttpAnswer(500, "broken")
