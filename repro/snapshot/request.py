"""The request that failed, as the caller gives it: its body, how long its input is, and what limits its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from repro.domain.fingerprint import Fact
from repro.snapshot.collector import Context, attempt

_BY = "given by the caller"
_LIMITS = ("max_completion_tokens", "max_tokens")
_LONGEST_BODY = 4 << 20  # characters kept of a body


class RequestCollector:
    """`input_tokens` where the request itself tells or the server that had it still counts; nobody else's tokenizer."""

    name = "request"
    deadline = 20.0
    fields = ("body", "input_tokens", "input_characters", "output_limit", "temperature", "concurrency", "stream")

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """Token ids in a prompt are counted; text is measured in characters."""
        concurrency = (
            Fact.declared(context.concurrency, _BY)
            if context.concurrency is not None
            else Fact.unavailable("--concurrency was not given")
        )
        if context.request is None:
            missing = Fact.unavailable("no request was given (--request FILE)")
            return {**dict.fromkeys(self.fields, missing), "concurrency": concurrency}
        body = context.request
        limit = next((body[name] for name in _LIMITS if body.get(name) is not None), None)
        return {
            "body": _body(context),
            "input_tokens": _tokens(context, body),
            "input_characters": Fact.measured(count_characters(body)),
            "output_limit": _told(limit, "the request sets none; the server's default holds"),
            "temperature": _told(body.get("temperature"), "the request sets none; the model's default holds"),
            "concurrency": concurrency,
            "stream": Fact.declared(bool(body.get("stream")), _BY),
        }


def _tokens(context: Context, body: Mapping[str, Any]) -> Fact:
    ids = count_token_ids(body.get("prompt"))
    if ids is not None:
        return Fact.measured(ids, "counted as token ids in the request")
    count = context.count_tokens
    if count is None:
        return Fact.unavailable("the input is text, and no server that could count it answers")
    return attempt(lambda: count(body), "counted by the server's own tokenizer (/tokenize)")


def count_token_ids(prompt: Any) -> int | None:
    """The number of token ids in a completion's prompt; the longest of several; None for text."""
    if not isinstance(prompt, list) or not prompt:
        return None
    if all(type(item) is int for item in prompt):
        return len(prompt)
    counts = [count_token_ids(item) for item in prompt]
    return max((count for count in counts if count is not None), default=None)


def count_characters(body: Mapping[str, Any]) -> int:
    """The characters of everything that the model is given to read: prompt, messages, tool definitions."""
    prompt = body.get("prompt", body.get("input"))
    if isinstance(prompt, str):
        return len(prompt)
    messages = body.get("messages") or []
    told = sum(_content(message.get("content")) for message in messages if isinstance(message, dict))
    tools = body.get("tools")
    return told + (len(json.dumps(tools, ensure_ascii=False)) if tools else 0)


def _content(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    parts = content if isinstance(content, list) else []
    return sum(len(part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _body(context: Context) -> Fact:
    masked = context.redactor.json(context.request)
    size = len(json.dumps(masked))
    if size > _LONGEST_BODY:
        return Fact.unavailable(f"the body has {size} characters, {_LONGEST_BODY} are kept; keep the file itself")
    return Fact.declared(masked, _BY)


def _told(value: Any, otherwise: str) -> Fact:
    return Fact.unavailable(otherwise) if value is None else Fact.declared(value, _BY)
