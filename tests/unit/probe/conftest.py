"""A server that answers from a script, and a tokenizer that counts words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from repro.probe.answer import HttpAnswer

Reply = Callable[[str, dict[str, Any] | None], HttpAnswer]


class ScriptedClient:
    """Answers by a function of path and body; remembers what was asked."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.asked: list[tuple[str, dict[str, Any] | None]] = []

    def get(self, path: str, deadline_s: float) -> HttpAnswer:
        self.asked.append((path, None))
        return self._reply(path, None)

    def post(self, path: str, body: dict[str, Any], deadline_s: float) -> HttpAnswer:
        self.asked.append((path, body))
        return self._reply(path, body)


def ok(body: object) -> HttpAnswer:
    return HttpAnswer(200, json.dumps(body))


def chat_answer(content: str = "fine", **more: Any) -> HttpAnswer:
    message = {"role": "assistant", "content": content, **more}
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    return ok({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage})


@pytest.fixture
def scripted() -> type[ScriptedClient]:
    return ScriptedClient


@pytest.fixture
def chat() -> Callable[..., HttpAnswer]:
    return chat_answer
