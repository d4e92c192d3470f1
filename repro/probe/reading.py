"""One answer of the OpenAI-like API, plain or streamed, chat or completion, read into one shape.

Reads both `reasoning` and the older `reasoning_content`; only the first choice is looked at.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from repro.probe.answer import DONE, HttpAnswer


@dataclass(frozen=True)
class ToolCall:
    """A call as the server gave it; `arguments` is meant to be the JSON text of an object."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Reading:
    """What an answer says. `complete`: a plain body that is JSON, or a stream that ended with `[DONE]`.

    `error` is the text of an error body or of an error event inside a stream. Token counts are None where not told.
    """

    content: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    error: str | None = None
    complete: bool = True


def read(answer: HttpAnswer) -> Reading:
    """Read a body, however broken; never raises."""
    gathered = _Gathered()
    if answer.streamed:
        events = answer.events
        for event in events:
            if event != DONE:
                gathered.take(_json(event))
        return gathered.reading(complete=DONE in events[-1:])
    body = answer.json
    gathered.take(body)
    return gathered.reading(complete=isinstance(body, dict))


@dataclass
class _Gathered:
    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    def take(self, piece: Any) -> None:
        """Add a whole body or one event of a stream."""
        if not isinstance(piece, dict):
            return
        if piece.get("error") or piece.get("object") == "error":
            self.error = self.error or _error_text(piece)
        if isinstance(piece.get("usage"), dict):
            self.usage = piece["usage"]
        for choice in _dicts(piece.get("choices")):
            if choice.get("index", 0) == 0:
                self._take_choice(choice)

    def _take_choice(self, choice: dict[str, Any]) -> None:
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        said = choice.get("message") or choice.get("delta")
        if not isinstance(said, dict):
            self.content.append(_text(choice.get("text")))
            return
        self.content.append(_text(said.get("content")))
        self.reasoning.append(_text(said.get("reasoning") or said.get("reasoning_content")))
        for place, call in enumerate(_dicts(said.get("tool_calls"))):
            function = call.get("function")
            if isinstance(function, dict):
                parts = self.calls.setdefault(_index(call, place), ["", ""])
                parts[0] += _text(function.get("name"))
                parts[1] += _text(function.get("arguments"))

    def reading(self, complete: bool) -> Reading:
        details = self.usage.get("prompt_tokens_details")
        return Reading(
            content="".join(self.content),
            reasoning="".join(self.reasoning),
            tool_calls=tuple(ToolCall(name, arguments) for _, (name, arguments) in sorted(self.calls.items())),
            finish_reason=self.finish_reason,
            prompt_tokens=_number(self.usage.get("prompt_tokens")),
            completion_tokens=_number(self.usage.get("completion_tokens")),
            cached_tokens=_number(details.get("cached_tokens")) if isinstance(details, dict) else None,
            error=self.error,
            complete=complete,
        )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _index(call: dict[str, Any], place: int) -> int:
    index = _number(call.get("index"))
    return place if index is None else index


def _error_text(piece: dict[str, Any]) -> str:
    error = piece.get("error")
    if isinstance(error, dict):
        return " ".join(str(error[key]) for key in ("type", "message") if error.get(key)) or json.dumps(error)
    return str(error or piece.get("message") or json.dumps(piece))
