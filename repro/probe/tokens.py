"""The server's own tokenizer, asked over POST /tokenize: the only judge of how long a prompt is."""

from __future__ import annotations

from typing import Any, Protocol

from repro.probe.answer import Client

# Fields of a chat request that change its prompt and that /tokenize knows by the same name.
_CHAT_FIELDS = (
    "messages",
    "tools",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
)
TOKENIZE_S = 120.0


class CannotCount(Exception):
    """The server does not say how many tokens a prompt has; the message says why."""


class Tokenizer(Protocol):
    """Counts as the server counts."""

    def count(self, body: dict[str, Any]) -> int:
        """Prompt tokens of a chat or completion body, chat frame and tools included. Raises CannotCount."""
        ...


class HttpTokenizer:
    """Counts through the server itself."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def count(self, body: dict[str, Any]) -> int:
        answer = self._client.post("/tokenize", _question(body), TOKENIZE_S)
        told = answer.json
        count = told.get("count") if isinstance(told, dict) else None
        if answer.status == 200 and isinstance(count, int):
            return count
        if answer.status == 404:
            raise CannotCount("the server has no /tokenize, so a prompt of an exact length cannot be built")
        raise CannotCount(f"POST /tokenize answered {answer.status or answer.fault}: {answer.excerpt()}")


def _question(body: dict[str, Any]) -> dict[str, Any]:
    if "messages" not in body:
        asked = {"prompt": body.get("prompt", "")}
        if "add_special_tokens" in body:
            asked["add_special_tokens"] = body["add_special_tokens"]
    else:
        asked = {name: body[name] for name in _CHAT_FIELDS if body.get(name) is not None}
        if body.get("reasoning_effort") is not None:
            # The chat endpoint hands the effort to the template; /tokenize knows no such field, only the template's.
            effort = {"reasoning_effort": body["reasoning_effort"]}
            asked["chat_template_kwargs"] = {**effort, **(asked.get("chat_template_kwargs") or {})}
    return {"model": body["model"], **asked} if "model" in body else asked
