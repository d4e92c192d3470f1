"""Builds the request set that a shape asks for, with prompts of exactly the asked length.

With a base request, production's own prompt is cut at the end of its last user text and everything else stays; without
one, seeded text without repeats is sent. Concurrent requests differ in their last few words, at equal length.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from repro.domain.request import COMPLETIONS, Request, RequestSet, RequestShape
from repro.probe.fit import Unfit, fit
from repro.probe.text import words
from repro.probe.tokens import CannotCount, Tokenizer

# How much of the prompt's end makes concurrent requests differ: about eight words of ours, a dozen tokens or more.
_TAIL_CHARS = 48
_TAIL_WORDS = 64
_VARIANTS = 8
# What is sent when neither a prompt nor a length is given.
_DEFAULT_WORDS = 16


@dataclass(frozen=True)
class CannotBuild:
    """The shape cannot be had on this server; `reason` names the length asked for and the nearest that can be had."""

    reason: str


def build(
    shape: RequestShape, tokenizer: Tokenizer, model: str, cache_salt: str | None = None
) -> RequestSet | CannotBuild:
    """The requests of `shape`, `shape.concurrency` at once, the whole set `shape.repeat` times.

    `model` is the name under which the server serves. `cache_salt` keeps a warm server from finding prefixes of earlier
    trials, so that the requests meet as cold a prefix cache as on a fresh one.
    """
    try:
        body = _body(shape, model, cache_salt)
        place = _place_of_text(body)
        texts = _texts(shape, body, place, tokenizer)
    except CannotCount as error:
        return CannotBuild(str(error))
    if isinstance(texts, CannotBuild):
        return texts
    path = shape.base.path if shape.base is not None else shape.path
    once = tuple(Request.of(path, body if place is None else place.put(body, text)) for text in texts)
    return RequestSet(once * shape.repeat, shape.concurrency, shape.expectation)


def _body(shape: RequestShape, model: str, cache_salt: str | None) -> dict[str, Any]:
    if shape.base is not None:
        body = shape.base.body
    else:
        body = {"temperature": 0, "seed": shape.seed}
        if shape.path == COMPLETIONS:
            body["prompt"] = ""
        else:
            body["messages"] = [{"role": "user", "content": ""}]
    body["model"] = model
    if shape.max_tokens is not None:
        body.pop("max_completion_tokens", None)
        body["max_tokens"] = shape.max_tokens
        if shape.base is None:
            body["ignore_eos"] = True  # or the limit asked for is not reached
    body.pop("stream", None)
    if shape.stream:
        body["stream"] = True
        body.setdefault("stream_options", {"include_usage": True})
    else:
        body.pop("stream_options", None)
    if shape.reasoning_effort is not None:
        body["reasoning_effort"] = shape.reasoning_effort
    if shape.tools_json is not None:
        body["tools"] = json.loads(shape.tools_json)
        body.setdefault("tool_choice", "auto")
    if cache_salt is not None:
        body["cache_salt"] = cache_salt
    return body


@dataclass(frozen=True)
class _Place:
    """Where in a body the text is that may be cut: keys from the body down to a string."""

    keys: tuple[str | int, ...]

    def get(self, body: dict[str, Any]) -> str:
        value: Any = body
        for key in self.keys:
            value = value[key]
        return str(value)

    def put(self, body: dict[str, Any], text: str) -> dict[str, Any]:
        changed: dict[str, Any] = json.loads(json.dumps(body))
        value: Any = changed
        for key in self.keys[:-1]:
            value = value[key]
        value[self.keys[-1]] = text
        return changed


def _place_of_text(body: dict[str, Any]) -> _Place | None:
    """The prompt string, or the last text of the last user message that has one; None if there is no such text."""
    if "messages" not in body:
        return _Place(("prompt",)) if isinstance(body.get("prompt"), str) else None
    messages = body["messages"]
    for number in range(len(messages) - 1, -1, -1):
        if messages[number].get("role") != "user":
            continue
        content = messages[number].get("content")
        if isinstance(content, str):
            return _Place(("messages", number, "content"))
        for part in range(len(content or ()) - 1, -1, -1):
            if isinstance(content[part], dict) and isinstance(content[part].get("text"), str):
                return _Place(("messages", number, "content", part, "text"))
    return None


def _texts(
    shape: RequestShape, body: dict[str, Any], place: _Place | None, tokenizer: Tokenizer
) -> tuple[str, ...] | CannotBuild:
    """The text of each concurrent request."""
    differ = shape.concurrency > 1 and not shape.shared_prefix
    if place is None:
        if shape.input_tokens is not None or differ:
            return CannotBuild("production's own request has no user text that could be cut or varied")
        return ("",) * shape.concurrency

    def count(text: str) -> int:
        return tokenizer.count(place.put(body, text))

    first = _first_text(shape, place.get(body), count)
    if isinstance(first, CannotBuild) or not differ:
        return first if isinstance(first, CannotBuild) else (first,) * shape.concurrency
    return _different(first, shape, count)


def _first_text(shape: RequestShape, text: str, count: Callable[[str], int]) -> str | CannotBuild:
    n = shape.input_tokens
    if n is None:
        return text if shape.base is not None else words(shape.seed, _DEFAULT_WORDS)
    if shape.base is None:
        text = _enough_words(shape.seed, n, count)
    fitted = fit(text, n, count)
    if isinstance(fitted, str):
        return fitted
    if fitted.whole < n:
        return CannotBuild(
            f"input_tokens {n} asks for more than production's own prompt has: the server counts {fitted.whole}"
        )
    return CannotBuild(
        f"no beginning of the prompt counts exactly {n} tokens on this server; the nearest is {fitted.nearest}"
    )


def _enough_words(seed: int, n: int, count: Callable[[str], int]) -> str:
    """Seeded text of somewhat more than n tokens; every word is one token at least, so n words always are enough."""
    sample = min(n, 200)
    each = max(1.0, (count(words(seed, sample)) - count("")) / sample)
    text = words(seed, min(n, int(n / each * 1.1) + 8))
    return text if count(text) >= n else words(seed, n)


def _different(first: str, shape: RequestShape, count: Callable[[str], int]) -> tuple[str, ...] | CannotBuild:
    """`first` and concurrency - 1 texts of equal count that differ in their last words."""
    n = shape.input_tokens if shape.input_tokens is not None else count(first)
    head = first[: max(0, len(first) - _TAIL_CHARS)]
    texts = [first]
    for number in range(1, shape.concurrency):
        for variant in range(_VARIANTS):
            # Far behind the words of a seeded prompt, so that no tail repeats a part of it.
            behind = 10_000_000 + (number * _VARIANTS + variant) * _TAIL_WORDS
            fitted = fit(f"{head} {words(shape.seed, _TAIL_WORDS, behind)}", n, count, near=len(texts[-1]))
            if isinstance(fitted, str) and fitted not in texts:
                texts.append(fitted)
                break
            nearest = fitted.nearest if isinstance(fitted, Unfit) else n
        else:
            return CannotBuild(
                f"no {shape.concurrency} different prompts of {n} tokens can be made here; nearest {nearest}"
            )
    return tuple(texts)
