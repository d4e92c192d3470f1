"""What came back over HTTP, as a value, and the two-method port through which everything in this room talks.

A network error is an answer here and never an exception: a server that refuses, resets or stays silent is what a trial
looks for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

DONE = "[DONE]"


class NetworkFault(str, Enum):
    """How an exchange broke below HTTP."""

    REFUSED = "refused"
    RESET = "reset"
    TIMEOUT = "timeout"
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class HttpAnswer:
    """One answer. `status` is None if none came; `text` holds what did, a broken stream's beginning included.

    `seconds` run from the request's start to its last byte or its break, `first_byte_s` to the first byte of the body.
    """

    status: int | None
    text: str = ""
    seconds: float = 0.0
    first_byte_s: float | None = None
    streamed: bool = False
    fault: NetworkFault | None = None
    detail: str = ""

    @property
    def json(self) -> Any:
        """The body as JSON, None if it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    @property
    def events(self) -> tuple[str, ...]:
        """The data of each server-sent event, `[DONE]` included."""
        found = []
        for block in self.text.replace("\r\n", "\n").split("\n\n"):
            lines = [line[5:].lstrip(" ") for line in block.split("\n") if line.startswith("data:")]
            if lines:
                found.append("\n".join(lines))
        return tuple(found)

    def excerpt(self, limit: int = 300) -> str:
        """The body on one line, its beginning or, of a stream, its end; or the network fault."""
        if self.fault is not None and not self.text:
            return f"{self.fault}: {self.detail}" if self.detail else str(self.fault)
        line = " ".join(self.text[-4 * limit :].split() if self.streamed else self.text[: 4 * limit].split())
        if len(line) <= limit:
            return line
        return "…" + line[1 - limit :] if self.streamed else line[: limit - 1] + "…"


class Client(Protocol):
    """A way to one server. `deadline_s` bounds the whole exchange, first byte sent to last byte read."""

    def get(self, path: str, deadline_s: float) -> HttpAnswer:
        """One GET; never raises for what the network or the server does."""
        ...

    def post(self, path: str, body: dict[str, Any], deadline_s: float) -> HttpAnswer:
        """One POST of JSON; a stream is read to its end."""
        ...
