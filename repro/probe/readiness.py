"""Is the server ready? Health, a listed model and one real completion: a "ready" vLLM can die on its first request.

A completion that is answered at all, even with a 4xx, ends the wait, and so does one that outlasts its deadline:
whether a ready server serves well is judged on the trial's own requests. A 5xx is looked at again a few times, since an
engine that died takes a moment to say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from repro.domain.request import CHAT, COMPLETIONS
from repro.probe.answer import Client, HttpAnswer, NetworkFault

HEALTH_S = 5.0
# A first request may compile a kernel; on a cold eight-GPU server that takes minutes.
FIRST_COMPLETION_S = 300.0
# An ordinary sentence: a prompt of one or two tokens takes rare paths through the kernels, and readiness is no test of
# those (vLLM 0.32 on a CPU with AMX dies of an illegal instruction when its very first prompt is that short).
PROMPT = (
    "Please read this sentence to its end and then answer in your own words whether the weather by the sea is more "
    "often windy or calm in the early morning, before the fishing boats have left the harbour for the day."
)
_PATIENCE = 3


@dataclass(frozen=True)
class Served:
    """What a ready server serves. `first_answer` tells of a first completion that was not a 200."""

    model: str
    max_model_len: int | None
    first_answer: str = ""


class CompletionReadiness:
    """Readiness of one server. `requests` counts the completions sent: they are served requests like any other."""

    def __init__(self, client_for: Callable[[str], Client], first_completion_s: float = FIRST_COMPLETION_S) -> None:
        self._client_for = client_for
        self._clients: dict[str, Client] = {}
        self._first_completion_s = first_completion_s
        self._server_errors = 0
        self.requests = 0
        self.served: Served | None = None

    def check(self, base_url: str) -> str | None:
        """None: ready, and `served` is known. Else why not yet."""
        if base_url not in self._clients:
            self._clients[base_url] = self._client_for(base_url)
        client = self._clients[base_url]
        health = client.get("/health", HEALTH_S)
        if health.status != 200:
            return f"/health: {_said(health)}"
        listed = client.get("/v1/models", HEALTH_S)
        model = _first_model(listed.json)
        if listed.status != 200 or model is None:
            return f"/v1/models lists no model: {_said(listed)}"
        answer = self._complete(client, str(model["id"]))
        if answer.status is None and answer.fault is not NetworkFault.TIMEOUT:
            return f"first completion: {_said(answer)}"
        if answer.status is not None and answer.status >= 500:
            self._server_errors += 1
            if self._server_errors < _PATIENCE:
                return f"first completion: {_said(answer)}"
        length = model.get("max_model_len")
        told = "" if answer.status == 200 else _said(answer)
        self.served = Served(str(model["id"]), length if isinstance(length, int) else None, told)
        return None

    def _complete(self, client: Client, model: str) -> HttpAnswer:
        common = {"model": model, "max_tokens": 1, "temperature": 0}
        self.requests += 1
        answer = client.post(COMPLETIONS, {**common, "prompt": PROMPT}, self._first_completion_s)
        if answer.status in (400, 404, 405):
            self.requests += 1
            chat = {**common, "messages": [{"role": "user", "content": PROMPT}]}
            answer = client.post(CHAT, chat, self._first_completion_s)
        return answer


def _first_model(listed: Any) -> dict[str, Any] | None:
    models = listed.get("data") if isinstance(listed, dict) else None
    for model in models if isinstance(models, list) else []:
        if isinstance(model, dict) and model.get("id"):
            return model
    return None


def _said(answer: HttpAnswer) -> str:
    return answer.excerpt(160) if answer.status is None else f"HTTP {answer.status} {answer.excerpt(160)}".rstrip()
