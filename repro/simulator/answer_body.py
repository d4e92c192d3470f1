"""The JSON of answers: whole and streamed chat and completion objects as vLLM 0.32 shapes them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from repro.simulator.engine import Answer
from repro.simulator.request_body import Request

# A stream never has more content events than this, so that very long answers stay cheap.
_MOST_EVENTS = 256


def usage(requests: list[Request], answers: list[Answer], details: bool) -> dict[str, Any]:
    """Token counts of a response; cached ones only where --enable-prompt-tokens-details asks for them."""
    prompt = sum(len(request.prompt) for request in requests)
    written = sum(answer.completion_tokens for answer in answers)
    cached = sum(answer.cached_tokens for answer in answers)
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + written,
        "completion_tokens": written,
        "prompt_tokens_details": {"cached_tokens": cached} if details else None,
    }


def whole_chat(request: Request, answer: Answer, counted: dict[str, Any], fingerprint: str) -> dict[str, Any]:
    message = {
        "role": "assistant",
        "content": None if answer.tool_calls else answer.text,
        "refusal": None,
        "tool_calls": list(answer.tool_calls),
        "reasoning": "".join(answer.reasoning) or None,
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish_reason}
    return {
        **_head(request, "chat.completion"),
        "choices": [choice],
        "system_fingerprint": fingerprint,
        "usage": counted,
    }


def whole_completion(
    requests: list[Request], answers: list[Answer], counted: dict[str, Any], fingerprint: str
) -> dict[str, Any]:
    choices = [
        {"index": index, "text": answer.text, "logprobs": None, "finish_reason": answer.finish_reason}
        for index, answer in enumerate(answers)
    ]
    head = _head(requests[0], "text_completion")
    return {**head, "choices": choices, "system_fingerprint": fingerprint, "usage": counted}


def chat_chunks(request: Request, answer: Answer, interval: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of a chat stream but for the last: (tokens in it, object)."""
    yield 0, _chat_chunk(request, {"role": "assistant", "content": ""}, None)
    for count, text in _grouped(answer.reasoning, interval):
        yield count, _chat_chunk(request, {"reasoning": text}, None)
    for index, call in enumerate(answer.tool_calls):
        function = call["function"]
        opening = {**call, "index": index, "function": {"name": function["name"], "arguments": ""}}
        yield 1, _chat_chunk(request, {"tool_calls": [opening]}, None)
        rest = {"index": index, "function": {"arguments": function["arguments"]}}
        yield answer.completion_tokens - 1, _chat_chunk(request, {"tool_calls": [rest]}, None)
    for count, text in _grouped(answer.pieces, interval):
        yield count, _chat_chunk(request, {"content": text}, None)


def last_chat_chunk(request: Request, answer: Answer) -> dict[str, Any]:
    # Between a named call in a stream and in a whole answer vLLM differs: the stream always says tool_calls.
    return _chat_chunk(request, {}, "tool_calls" if answer.tool_calls else answer.finish_reason)


def completion_chunks(
    request: Request, answer: Answer, index: int, interval: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    for count, text in _grouped(answer.pieces, interval):
        yield count, _completion_chunk(request, index, text, None)


def last_completion_chunk(request: Request, answer: Answer, index: int) -> dict[str, Any]:
    return _completion_chunk(request, index, "", answer.finish_reason)


def usage_chunk(request: Request, counted: dict[str, Any]) -> dict[str, Any]:
    kind = "chat.completion.chunk" if request.chat else "text_completion"
    return {**_head(request, kind), "choices": [], "usage": counted}


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def _grouped(pieces: tuple[str, ...], interval: int) -> Iterator[tuple[int, str]]:
    size = max(interval, -(-len(pieces) // _MOST_EVENTS), 1)
    for start in range(0, len(pieces), size):
        group = pieces[start : start + size]
        yield len(group), "".join(group)


def _chat_chunk(request: Request, delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {**_head(request, "chat.completion.chunk"), "choices": [choice]}


def _completion_chunk(request: Request, index: int, text: str, finish_reason: str | None) -> dict[str, Any]:
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason}
    return {**_head(request, "text_completion"), "choices": [choice]}


def _head(request: Request, kind: str) -> dict[str, Any]:
    return {"id": request.identity, "object": kind, "created": int(time.time()), "model": request.model}
