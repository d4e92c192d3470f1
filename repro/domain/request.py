"""Requests, what is expected of their answers, and the shape from which the requests of a trial are built."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


@dataclass(frozen=True)
class Expectation:
    """What a good answer looks like. `deadline_s` covers one request from first byte sent to last byte read.

    `not_empty` asks for content, reasoning or a tool call; `tool_call` for at least one call with a name and arguments
    that are JSON; `no_markers` forbids template markers such as `<|open|>` in content; `no_endless_token` forbids an
    answer that is one token over and over.
    """

    status: int = 200
    not_empty: bool = True
    tool_call: bool = False
    finish_reasons: tuple[str, ...] = ()
    no_markers: bool = True
    no_endless_token: bool = True
    deadline_s: float = 600.0


@dataclass(frozen=True)
class Request:
    """One HTTP request: `path` below the server's address and a JSON body kept as canonical text."""

    path: str
    body_json: str

    @staticmethod
    def of(path: str, body: dict[str, Any]) -> Request:
        return Request(path, json.dumps(body, ensure_ascii=False, sort_keys=True))

    @property
    def body(self) -> dict[str, Any]:
        """A fresh copy of the body; changing it changes nothing here."""
        loaded: dict[str, Any] = json.loads(self.body_json)
        return loaded


@dataclass(frozen=True)
class RequestSet:
    """Requests in a fixed order, `at_once` of them in flight together, all judged by one expectation."""

    requests: tuple[Request, ...]
    at_once: int
    expectation: Expectation


@dataclass(frozen=True)
class RequestShape:
    """What the request variables ask for, before the server's tokenizer has been asked.

    `base` is production's own request; None means seeded text without repeats, sent to `path`. `input_tokens` is the
    length of the prompt as the server counts it, chat frame included; None leaves the base prompt whole. `tools_json`
    is the JSON array of tool definitions. Concurrent requests differ in their tail unless `shared_prefix`.
    """

    base: Request | None = None
    path: str = CHAT
    input_tokens: int | None = None
    max_tokens: int | None = None
    concurrency: int = 1
    stream: bool = False
    reasoning_effort: str | None = None
    tools_json: str | None = None
    shared_prefix: bool = False
    repeat: int = 1
    seed: int = 0
    expectation: Expectation = Expectation()

    def repeated(self, times: int) -> RequestShape:
        return replace(self, repeat=times)
