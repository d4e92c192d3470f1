"""Turns the JSON body of a chat or completion request into a `Request`, or refuses it in vLLM 0.32's words.

What is checked is what a client of this project can meet: model name, length of prompt and answer, tool choice
without the flags, and bodies that are no request at all.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from repro.simulator import tokens
from repro.simulator.arguments import ServeArguments

Body = dict[str, Any]
Result = TypeVar("Result")


class Refused(Exception):
    """A request that is answered with an error body; the server lives on."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True)
class Request:
    """One prompt to answer. `max_tokens` is what may be written at most, `asked_max_tokens` what the client wrote."""

    identity: str
    model: str
    chat: bool
    prompt: tuple[int, ...]
    max_tokens: int
    asked_max_tokens: int
    text: str
    min_tokens: int = 0
    ignore_eos: bool = False
    temperature: float = 1.0
    seed: int | None = None
    salt: str = ""
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    has_tools: bool = False
    tool: Body | None = None
    tool_named: bool = False
    schema: Body | None = None
    reasoning_effort: str = ""
    thinks: bool = False


def well_formed(read: Callable[..., Result]) -> Callable[..., Result]:
    """Turn what a wrongly typed field raises deep inside into the 400 that vLLM's own body check gives."""

    @wraps(read)
    def reading(*given: Any) -> Result:
        try:
            return read(*given)
        except (TypeError, ValueError, AttributeError) as error:
            raise Refused(400, f"1 validation error:\n  {{'type': 'value_error', 'msg': '{error}'}}") from None

    return reading


@well_formed
def read_chat(body: Body, arguments: ServeArguments, max_model_len: int) -> Request:
    """The request of a `/v1/chat/completions` body."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise Refused(
            400, "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}"
        )
    _check_model(body, arguments)
    tools, tool, named = _tool_to_call(body, arguments, messages)
    text = tokens.render_chat(messages, tools)
    _check_text(text, max_model_len)
    return _request(body, arguments, max_model_len, tokens.encode(text), text, tools=tools, tool=tool, named=named)


@well_formed
def read_completion(body: Body, arguments: ServeArguments, max_model_len: int) -> list[Request]:
    """The requests of a `/v1/completions` body, one for each prompt: text, token numbers, or a list of either."""
    _check_model(body, arguments)
    prompt = body.get("prompt")
    if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and isinstance(prompt[0], int)):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise Refused(400, "Either prompt or prompt_embeds must be provided and non-empty.")
    requests = []
    for one in prompt:
        if isinstance(one, str):
            _check_text(one, max_model_len)
            requests.append(_request(body, arguments, max_model_len, tokens.encode(one), one))
        elif isinstance(one, list) and all(isinstance(n, int) and 0 <= n < 2**63 for n in one):
            requests.append(_request(body, arguments, max_model_len, tuple(one), tokens.decode(one)))
        else:
            raise Refused(400, "prompt must be a string, a list of strings or a list of token ids")
    return requests


@well_formed
def read_tokenize(body: Body) -> tuple[int, ...]:
    """The tokens of a `/tokenize` body: of `messages` with the chat frame, or of `prompt`."""
    if isinstance(body.get("messages"), list):
        framed = tokens.render_chat(body["messages"], body.get("tools"), body.get("add_generation_prompt", True))
        return tokens.encode(framed)
    if not isinstance(body.get("prompt"), str):
        raise Refused(
            400, "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'prompt'), 'msg': 'Field required'}"
        )
    return tokens.encode(body["prompt"])


def _request(
    body: Body,
    arguments: ServeArguments,
    max_model_len: int,
    prompt: tuple[int, ...],
    text: str,
    tools: list[Body] | None = None,
    tool: Body | None = None,
    named: bool = False,
) -> Request:
    chat = "messages" in body
    asked = _asked_tokens(body, chat, len(prompt), max_model_len)
    room = max_model_len - len(prompt)
    effort = str(body.get("reasoning_effort") or "")
    options = body.get("stream_options") or {}
    stop = body.get("stop") or ()
    return Request(
        identity=("chatcmpl-" if chat else "cmpl-") + os.urandom(8).hex(),
        model=body.get("model") or arguments.served_names[0],
        chat=chat,
        prompt=prompt,
        max_tokens=room if asked is None else min(asked, room),
        asked_max_tokens=room if asked is None else asked,
        text=text,
        min_tokens=_integer(body, "min_tokens", 0) or 0,
        ignore_eos=bool(body.get("ignore_eos")),
        temperature=float(1.0 if body.get("temperature") is None else body["temperature"]),
        seed=_integer(body, "seed", None),
        salt=str(body.get("cache_salt") or ""),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage") or arguments.value("enable_force_include_usage")),
        has_tools=bool(tools),
        tool=tool,
        tool_named=named,
        schema=_wanted_schema(body),
        reasoning_effort=effort,
        thinks=chat and bool(arguments.value("reasoning_parser")) and _may_think(body, effort),
    )


def _asked_tokens(body: Body, chat: bool, prompt_length: int, max_model_len: int) -> int | None:
    param = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    asked = _integer(body, param, None if chat else 16)
    if body.get("n") not in (None, 1):
        raise Refused(400, "n must be 1: the stand-in writes one answer to a prompt", param="n")
    _check_lengths(prompt_length, asked, param, max_model_len)
    return asked


def _may_think(body: Body, effort: str) -> bool:
    template = body.get("chat_template_kwargs") or {}
    return effort != "none" and template.get("thinking", template.get("enable_thinking", True)) is not False


def _wanted_schema(body: Body) -> Body | None:
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_schema":
        schema = (wanted.get("json_schema") or {}).get("schema")
        return schema if isinstance(schema, dict) else {"type": "object"}
    return {"type": "object"} if wanted.get("type") == "json_object" else None


def _check_model(body: Body, arguments: ServeArguments) -> None:
    model = body.get("model")
    if model and model not in arguments.served_names:
        served = ", ".join(arguments.served_names)
        message = f"The model `{model}` does not exist. Valid aliases: {served}."
        raise Refused(404, message, "NotFoundError", "model")


def _check_text(text: str, max_model_len: int) -> None:
    bound = max_model_len * tokens.MAX_CHARACTERS_PER_TOKEN
    if len(text) > bound:
        raise Refused(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains {len(text)} "
            f"characters (more than {bound} characters, which is the upper bound for {max_model_len} input tokens). "
            f"Please reduce the length of the input prompt. (parameter=input_text, value={len(text)})",
            param="input_text",
        )


def _check_lengths(count: int, asked: int | None, param: str, max_model_len: int) -> None:
    if asked is not None and asked < 1:
        raise Refused(400, f"{param} must be at least 1, got {asked}. (parameter={param}, value={asked})", param=param)
    if asked is not None and asked > max_model_len:
        raise Refused(
            400,
            f"{param}={asked} cannot be greater than max_model_len={max_model_len}. "
            f"Please request fewer output tokens. (parameter={param}, value={asked})",
            param=param,
        )
    if count >= max_model_len:
        raise Refused(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains {count} "
            "input tokens, which exceeds this limit even without any output tokens. "
            f"Please reduce the length of the input prompt. (parameter=input_tokens, value={count})",
            param="input_tokens",
        )


def _integer(body: Body, name: str, default: int | None) -> int | None:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused(
            400, f"1 validation error:\n  {{'type': 'int_parsing', 'loc': ('body', '{name}'), 'input': {value!r}}}"
        )
    return value


def _tool_to_call(
    body: Body, arguments: ServeArguments, messages: list[Body]
) -> tuple[list[Body] | None, Body | None, bool]:
    """The tools to show, the one to call (None: answer in text) and whether the client named it."""
    tools = body.get("tools") or None
    choice = body.get("tool_choice") or ("auto" if tools else "none")
    if choice == "none" or not tools:
        return (None if arguments.value("exclude_tools_when_tool_choice_none") else tools), None, False
    parser = arguments.value("tool_call_parser")
    if choice == "auto":
        if not (parser and arguments.value("enable_auto_tool_choice")):
            needed = "--enable-auto-tool-choice and --tool-call-parser to be set"
            raise Refused(400, f'"auto" tool choice requires {needed}')
        return tools, _asked_tool(tools, messages), False
    name = choice.get("function", {}).get("name") if isinstance(choice, dict) else None
    if not parser:
        said = f'function "{name}"' if name else f'"{choice}"'
        raise Refused(400, f"tool_choice={said} requires --tool-call-parser to be set")
    if name is None:
        return tools, _function(tools[0]), False
    for tool in tools:
        if _function(tool).get("name") == name:
            return tools, _function(tool), True
    raise Refused(400, "The tool specified in `tool_choice` does not match any of the specified `tools`")


def _function(tool: Any) -> Body:
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Refused(400, f"tools: a function with a name is required, not {json.dumps(tool)[:80]}")
    return function


def _asked_tool(tools: list[Any], messages: list[Body]) -> Body | None:
    """Under `auto` the stand-in calls the tool that the last user message names, or the first if it says `tool`."""
    last = next((tokens.message_text(m) for m in reversed(messages) if m.get("role") == "user"), "")
    if messages[-1].get("role") != "user":
        return None
    for tool in tools:
        if _function(tool)["name"] in last:
            return _function(tool)
    return _function(tools[0]) if "tool" in last.lower() else None
