"""What production asks of its server: its own request, or the numbers that describe one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from repro.domain.request import Request
from repro.domain.scene import (
    CONCURRENCY,
    INPUT_TOKENS,
    MAX_TOKENS,
    REASONING_EFFORT,
    REQUEST_DEFAULTS,
    SHARED_PREFIX,
    STREAM,
    TOOL_CALLS,
)
from repro.domain.variable import Value


@dataclass(frozen=True)
class Asked:
    """Production's request values. What is None here is read from the request's body, where there is one.

    `tools_json` is a JSON array of tool definitions for a request that brings none. An empty `reasoning_effort` leaves
    the effort to the server, whatever the body says.
    """

    request: Request | None = None
    input_tokens: int | None = None
    max_tokens: int | None = None
    concurrency: int = 1
    stream: bool | None = None
    reasoning_effort: str | None = None
    tools_json: str | None = None
    shared_prefix: bool = False

    def values(self, tool_calls: bool | None = None) -> dict[str, Value]:
        """A value for every name of REQUEST_DEFAULTS; tools are sent where there are any, unless `tool_calls` says."""
        body = self.request.body if self.request else {}
        told: dict[str, Value] = {
            INPUT_TOKENS: self.input_tokens,
            MAX_TOKENS: self.max_tokens if self.max_tokens is not None else limit_of(body),
            CONCURRENCY: self.concurrency,
            STREAM: bool(body.get("stream")) if self.stream is None else self.stream,
            REASONING_EFFORT: self._effort(body),
            TOOL_CALLS: self.tools_json is not None or bool(body.get("tools")) if tool_calls is None else tool_calls,
            SHARED_PREFIX: self.shared_prefix,
        }
        return {name: told[name] for name in REQUEST_DEFAULTS}

    def _effort(self, body: dict[str, Any]) -> str | None:
        said = body.get("reasoning_effort") if self.reasoning_effort is None else self.reasoning_effort
        return said if isinstance(said, str) and said else None


def limit_of(body: dict[str, Any]) -> int | None:
    """The answer's limit that a body asks for; the newer name wins, as in vLLM."""
    for key in ("max_completion_tokens", "max_tokens"):
        value = body.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None
