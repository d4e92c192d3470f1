"""The scene of a search: its two ends, what differs between them, what a configuration means for server and request.

A configuration's value for a launch variable is never taken apart. It equals the variable's production value: the parts
are then production's; or its minimal value: the parts are then the minimal command's; or it is a whole number between
the two, which is written as such. So a coupled variable may hold any value that identifies its side (the tuple of the
arguments it stands for), and what is launched is always what the user wrote. Flags keep production's order: production
is rendered as it was given, and everything else is production with parts set back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from repro.domain.command import Command, difference
from repro.domain.launch import Launch
from repro.domain.request import CHAT, Expectation, Request, RequestShape
from repro.domain.variable import (
    Configuration,
    Kind,
    Value,
    Variable,
    minimal_configuration,
    production_configuration,
)

INPUT_TOKENS, MAX_TOKENS, CONCURRENCY, STREAM = "input_tokens", "max_tokens", "concurrency", "stream"
REASONING_EFFORT, TOOL_CALLS, SHARED_PREFIX = "reasoning_effort", "tool_calls", "shared_prefix"
REQUEST_DEFAULTS: dict[str, Value] = {
    INPUT_TOKENS: None,
    MAX_TOKENS: None,
    CONCURRENCY: 1,
    STREAM: False,
    REASONING_EFFORT: None,
    TOOL_CALLS: False,
    SHARED_PREFIX: False,
}
"""Every request value with what holds when neither end says anything; None leaves it to the prompt or the server."""

PREFIX_CACHING, PREFIX_CACHING_FLAG = "prefix_caching", "--enable-prefix-caching"
NODES = "nodes"
ENVIRONMENT = "env:"

# What belongs to a request value is taken out of production's body, so that the value alone decides.
_OWNED = ("max_tokens", "max_completion_tokens", "stream", "reasoning_effort", "tools")
_ONLY_WITH_STREAM = ("stream_options",)
_ONLY_WITH_TOOLS = ("tool_choice", "parallel_tool_calls")


@dataclass(frozen=True)
class Scene:
    """Everything a search is about, before anything has been started.

    `variables` are in the order of trial. `environment` is fixed on both ends, below what the commands themselves set;
    `environment_from` are names only. `request` is production's own as it was captured, `tools_json` the tools where
    that has none. `fixed_request` holds request values that are equal on both ends and not the default. `precision` is
    a fraction of the passing value, 0 for exact. ValueError where a difference between the commands belongs to no
    variable, because production's failure could then hide in it.
    """

    name: str
    variables: tuple[Variable, ...]
    minimal: Command
    production: Command
    environment: tuple[tuple[str, str], ...] = ()
    environment_from: tuple[str, ...] = ()
    request: Request | None = None
    path: str = CHAT
    tools_json: str | None = None
    fixed_request: tuple[tuple[str, Value], ...] = ()
    expectation: Expectation = Expectation()
    recipe: str = "generic"
    recipe_digest: str = ""
    precision: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        names = [v.name for v in self.variables]
        if len(set(names)) != len(names):
            raise ValueError("a variable is there twice")
        if wrong := {v.name for v in self.variables if v.kind is Kind.REQUEST} - set(REQUEST_DEFAULTS):
            raise ValueError(f"{', '.join(sorted(wrong))}: no request value is called so")
        left = difference(self.launch(self.minimal_configuration).command, self.minimal)
        if left:
            raise ValueError(f"the ends differ in more than the variables: {', '.join(d.name for d in left)}")

    @property
    def minimal_configuration(self) -> Configuration:
        return minimal_configuration(self.variables)

    @property
    def production_configuration(self) -> Configuration:
        return production_configuration(self.variables)

    def variable(self, name: str) -> Variable:
        """The variable of this name; KeyError for another."""
        for variable in self.variables:
            if variable.name == name:
                return variable
        raise KeyError(name)

    def launch(self, configuration: Configuration) -> Launch:
        """What it takes to start the server of this configuration."""
        command = self.production
        for variable in self.variables:
            if variable.kind is Kind.LAUNCH:
                command = self._set(command, variable, configuration[variable.name])
        return Launch(command, self.environment, self.environment_from)

    def _set(self, command: Command, variable: Variable, value: Value) -> Command:
        if _same(value, variable.production):
            return command
        if _same(value, variable.minimal):
            for part in variable.parts:
                command = with_part(command, part, part_value(self.minimal, part))
            return command
        if variable.ordinal and isinstance(value, int) and len(variable.parts) == 1:
            return with_part(command, variable.parts[0], str(value))
        raise ValueError(f"{variable.name}: {value!r} is neither of its ends nor a whole number between them")

    def shape(self, configuration: Configuration) -> RequestShape:
        """What is asked of the server under this configuration."""
        values = {**REQUEST_DEFAULTS, **dict(self.fixed_request)}
        values |= {v.name: configuration[v.name] for v in self.variables if v.kind is Kind.REQUEST}
        tools = self.tools if values[TOOL_CALLS] else None
        return RequestShape(
            base=self._base(bool(values[STREAM]), tools is not None),
            path=self.request.path if self.request else self.path,
            input_tokens=_whole(values[INPUT_TOKENS]),
            max_tokens=_whole(values[MAX_TOKENS]),
            concurrency=_whole(values[CONCURRENCY]) or 1,
            stream=bool(values[STREAM]),
            reasoning_effort=_text(values[REASONING_EFFORT]),
            tools_json=tools,
            shared_prefix=bool(values[SHARED_PREFIX]),
            seed=self.seed,
            expectation=self.expectation if tools else replace(self.expectation, tool_call=False),
        )

    @property
    def tools(self) -> str | None:
        """The tool definitions as a JSON array: the request's own, else those given beside it."""
        own = self.request.body.get("tools") if self.request else None
        return canonical_json(own) if own else self.tools_json

    def _base(self, stream: bool, tools: bool) -> Request | None:
        if self.request is None:
            return None
        gone = {*_OWNED, *(() if stream else _ONLY_WITH_STREAM), *(() if tools else _ONLY_WITH_TOOLS)}
        return Request.of(self.request.path, {k: v for k, v in self.request.body.items() if k not in gone})


def part_value(command: Command, part: str) -> Value:
    """What a command says about a flag or an `env:NAME`; None where it says nothing."""
    if part.startswith(ENVIRONMENT):
        return dict(command.environment).get(part.removeprefix(ENVIRONMENT))
    return command.flag(part)


def with_part(command: Command, part: str, value: Value) -> Command:
    """The command with a flag or an `env:NAME` set to a value, or taken away by None."""
    if not part.startswith(ENVIRONMENT):
        return command.with_flag(part, value if not isinstance(value, int) or isinstance(value, bool) else str(value))
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{part} needs text, not {value!r}")
    return command.with_environment(part.removeprefix(ENVIRONMENT), value)


def canonical_json(value: object) -> str:
    """One text for one JSON value, as `Request.of` writes it."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _same(left: Value, right: Value) -> bool:
    # True == 1 in Python, and a flag without a value is not the number 1.
    return type(left) is type(right) and left == right


def _whole(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None
