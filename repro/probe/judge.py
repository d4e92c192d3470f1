"""Does an answer meet its expectation? Pure; the miss is named with the family that a failure while serving has."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from repro.domain.failure import Failure, Family
from repro.domain.request import Expectation
from repro.domain.stage import Stage
from repro.probe.answer import HttpAnswer, NetworkFault
from repro.probe.reading import Reading, ToolCall, read

# How vLLM words that prompt or output limit do not fit the model's length, over versions and request kinds.
_TOO_LONG = re.compile(
    r"context length|maximum model length|max_model_len|maximum (?:input|prompt) length|too many tokens"
    r"|longer than the maximum|reduce the length|max_(?:completion_)?tokens\W.{0,60}too large"
    r"|\(more than \d+ characters",
    re.IGNORECASE,
)
_ENGINE_DEAD = re.compile(r"EngineDead|EngineCore|engine core|engine is dead|engine process|background loop", re.I)
# Template tokens that a parser should have eaten: <|open|>, <|tool_call_begin|>, <tool_call>, </think>.
_MARKER = re.compile(r"<\|[A-Za-z_][\w ]{0,40}\|>|</?(?:tool_call|think)>")
# One unit of at most 16 characters, 32 times or more to the very end. Shorter rows happen in sound text (rulers, dots).
_ENDLESS = re.compile(r"(.{1,16}?)\1{31,}\Z", re.DOTALL)
_TAIL = 4096


@dataclass(frozen=True)
class Miss:
    """Why an answer does not meet its expectation.

    `kind` tells faults of one family apart ("HTTP 500", "empty answer") and is the same whenever the fault is.
    `refused`: the server turned the request down (4xx) without having worked on it, and is as sound as before.
    """

    family: Family
    detail: str
    kind: str = ""
    refused: bool = False

    def failure(self, reached: tuple[Stage, ...] = ()) -> Failure:
        """The failure of a server whose log tells nothing more than this answer does."""
        return Failure(
            Stage.SERVING,
            self.family,
            root_template=self.kind,
            reached=reached,
            confidence=0.6,
            detail=self.detail,
        )


def judge(expectation: Expectation, answer: HttpAnswer, reading: Reading | None = None) -> Miss | None:
    """None if the answer is as expected. `reading` saves reading the answer twice."""
    said = read(answer) if reading is None else reading
    return _broken(expectation, answer) or _wrong_status(expectation, answer, said) or _bad_output(expectation, said)


def _broken(expectation: Expectation, answer: HttpAnswer) -> Miss | None:
    match answer.fault:
        case NetworkFault.TIMEOUT:
            return Miss(Family.TIMEOUT, f"no complete answer within {expectation.deadline_s:g} s")
        case NetworkFault.REFUSED:
            return Miss(Family.ENGINE_DEAD, "the server refused the connection")
        case NetworkFault.RESET:
            return Miss(Family.ENGINE_DEAD, f"the server broke the connection: {answer.detail}")
        case NetworkFault.OTHER:
            return Miss(Family.HTTP_ERROR, f"the exchange broke: {answer.detail}", "broken exchange")
        case None:
            late = answer.seconds > expectation.deadline_s
            return Miss(Family.TIMEOUT, f"the answer took {answer.seconds:.1f} s") if late else None


def _wrong_status(expectation: Expectation, answer: HttpAnswer, said: Reading) -> Miss | None:
    if answer.status != expectation.status:
        detail = f"HTTP {answer.status}: {said.error or answer.excerpt()}"
        refused = answer.status is not None and 400 <= answer.status < 500
        return Miss(_family_of_error(answer.status, answer.text), detail, f"HTTP {answer.status}", refused)
    if expectation.status != 200:
        return None
    if said.error is not None:
        family = _family_of_error(200, said.error)
        return Miss(family, f"error inside a 200 answer: {said.error}", "error inside a 200 answer")
    if not said.complete:
        detail = "the stream ended without [DONE]" if answer.streamed else f"not a JSON object: {answer.excerpt()}"
        if answer.streamed:
            return Miss(Family.HTTP_ERROR, detail, "cut stream")
        return Miss(Family.BAD_OUTPUT, detail, "no JSON")
    return None


def _family_of_error(status: int | None, text: str) -> Family:
    if status in (400, 413, 422) and _TOO_LONG.search(text):
        return Family.CONTEXT_LENGTH
    if status in (200, 500, 503) and _ENGINE_DEAD.search(text):
        return Family.ENGINE_DEAD
    return Family.HTTP_ERROR


def _bad_output(expectation: Expectation, said: Reading) -> Miss | None:
    if expectation.status != 200:
        return None
    found = _content_fault(expectation, said)
    if found is not None:
        kind, detail = found
        return Miss(Family.BAD_OUTPUT, f"{detail} (finish_reason {said.finish_reason})", kind)
    if expectation.finish_reasons and said.finish_reason not in expectation.finish_reasons:
        wanted = " or ".join(expectation.finish_reasons)
        kind = f"finish_reason {said.finish_reason}"
        return Miss(Family.BAD_OUTPUT, f"{kind}, expected {wanted}", kind)
    return None


def _content_fault(expectation: Expectation, said: Reading) -> tuple[str, str] | None:
    """(kind, detail) of what is wrong with the content itself."""
    if expectation.tool_call:
        fault = _tool_fault(said.tool_calls)
        if fault is not None:
            return fault
    elif expectation.not_empty and not (said.content or said.reasoning or said.tool_calls):
        return "empty answer", "empty answer: no content, no reasoning, no tool call"
    if expectation.no_markers:
        marker = _MARKER.search(said.content) or _MARKER.search(said.reasoning)
        if marker:
            return "template marker", f"template marker in the text: {marker.group()}"
    if expectation.no_endless_token:
        row = _ENDLESS.search(said.content[-_TAIL:]) or _ENDLESS.search(said.reasoning[-_TAIL:])
        if row:
            return "endless token", f"one token over and over: {row.group(1)!r}"
    return None


def _tool_fault(calls: tuple[ToolCall, ...]) -> tuple[str, str] | None:
    if not calls:
        return "no tool call", "no tool call in the answer"
    for call in calls:
        if not call.name:
            return "nameless tool call", "a tool call without a name"
        try:
            arguments = json.loads(call.arguments)
        except ValueError:
            return "tool arguments", f"the arguments of {call.name} are not JSON: {call.arguments[:80]!r}"
        if not isinstance(arguments, dict):
            return "tool arguments", f"the arguments of {call.name} are no object: {call.arguments[:80]!r}"
    return None
