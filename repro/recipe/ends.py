"""The two ends of a scenario as they are worked on: their commands, their request values, and what differs.

Two placeholders are replaced in commands and in values of the environment: `{python}` by the Python that runs repro,
`{here}` by the scenario's folder.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from repro.domain.command import Command, difference, is_listen, is_secret, parse
from repro.domain.request import Request
from repro.domain.scene import ENVIRONMENT, INPUT_TOKENS, PREFIX_CACHING_FLAG, REQUEST_DEFAULTS, part_value, with_part
from repro.domain.variable import Value
from repro.errors import ReproError
from repro.recipe.asked import Asked
from repro.recipe.couplings import NODE_FLAGS
from repro.recipe.model import Recipe
from repro.recipe.scenario import End, Scenario
from repro.recipe.source import Keys, Source
from repro.recipe.variables import canonical_part, differing_parts, differing_values
from repro.redact.environment_names import is_secret_name
from repro.redact.shapes import MASK, holds_secret


@dataclass(frozen=True)
class Ends:
    """Both commands, and a value for every name of REQUEST_DEFAULTS on both sides."""

    minimal: Command
    production: Command
    low: Mapping[str, Value]
    high: Mapping[str, Value]

    @property
    def differing(self) -> tuple[str, ...]:
        """Names of request values, then flags and `env:NAME`s, that are not equal."""
        return (*differing_values(self.low, self.high), *differing_parts(self.minimal, self.production))

    def value(self, name: str, production: bool) -> Value:
        """What one end says about a request value, a flag or an `env:NAME`."""
        if name in REQUEST_DEFAULTS:
            return (self.high if production else self.low)[name]
        return part_value(self.production if production else self.minimal, name)

    def levelled(self, name: str) -> Ends:
        """Both ends with production's value for one name."""
        if name in REQUEST_DEFAULTS:
            return replace(self, low={**self.low, name: self.high[name]})
        return replace(self, minimal=with_part(self.minimal, name, part_value(self.production, name)))


def read_ends(scenario: Scenario, source: Source, recipe: Recipe, request: Request | None, tools: str | None) -> Ends:
    """Both ends of a scenario file, comparable; InvalidFile where they are not, or hold a secret."""
    minimal = _command(source, ("minimal", "command"), scenario.minimal)
    production = _command(source, ("production", "command"), scenario.production)
    minimal, production = _with_prefix_caching(minimal, production, recipe.caches_prefixes(None))
    _refuse_different_starts(source, minimal, production)
    low, high = (_values(end, recipe, request, tools) for end in (scenario.minimal, scenario.production))
    _refuse_half_a_length(source, low, high)
    return _excluded(scenario, source, Ends(minimal, production, low, high))


def placed(text: str, source: Source) -> str:
    """The text with both placeholders replaced."""
    return text.replace("{python}", sys.executable).replace("{here}", str(source.folder))


def refuse_secret(source: Source, keys: Keys, name: str, value: str) -> None:
    """InvalidFile where a variable's value is a secret: it may only be passed on by name."""
    if is_secret_name(name) or holds_secret(value):
        what = f"{name} is a secret, and secrets are never written into files"
        raise source.error(keys, what, f'Take it out, export it and write env_from = ["{name}"].')


def _command(source: Source, keys: Keys, end: End) -> Command:
    words = end.command
    if MASK.search(words if isinstance(words, str) else " ".join(words)):
        mend = "Take it out of the command and let vLLM read it from a variable that is named in env_from."
        raise source.error(keys, "a masked secret stands here, which no server can use", mend)
    try:
        command = parse(placed(words, source) if isinstance(words, str) else [placed(word, source) for word in words])
    except ReproError as error:
        raise source.error(keys, error.message, error.hint) from error
    for name, value in command.environment:
        refuse_secret(source, keys, name, value)
    for flag in dict.fromkeys(f.name for f in command.flags):
        if is_secret(flag):
            what = f"{flag} holds a secret, and secrets are never written into files"
            mend = "Take it out and name the variable that vLLM reads instead (VLLM_API_KEY, HF_TOKEN) in env_from."
            raise source.error(keys, what, mend)
        if is_listen(flag):
            # Where production listens is no property of the fault, and repro's servers get ports of their own.
            command = command.with_flag(flag, None)
    return command


def _with_prefix_caching(minimal: Command, production: Command, default: bool) -> tuple[Command, Command]:
    """Where one end says it, the other does too: the default changed between versions."""
    said = [end.flag(PREFIX_CACHING_FLAG) is not None for end in (minimal, production)]
    if said == [True, False]:
        return minimal, production.with_flag(PREFIX_CACHING_FLAG, default)
    if said == [False, True]:
        return minimal.with_flag(PREFIX_CACHING_FLAG, default), production
    return minimal, production


def _refuse_different_starts(source: Source, minimal: Command, production: Command) -> None:
    """Only flags and environment can vary; everything around them is one and the same server."""
    for change in difference(minimal, production):
        if not change.name.startswith(("-", ENVIRONMENT)):
            sides = f"{change.left!r} and {change.right!r}"
            what = f"the ends differ in the {change.name} ({sides}), which no search can vary"
            raise source.error(("production", "command"), what, f"Give both ends the same {change.name}.")


def _values(end: End, recipe: Recipe, request: Request | None, tools: str | None) -> dict[str, Value]:
    least = recipe.minimal_request
    seeded = request is None
    asked = Asked(
        request=request,
        input_tokens=end.input_tokens or (least.input_tokens if seeded else None),
        max_tokens=end.max_tokens or (least.max_tokens if seeded else None),
        concurrency=end.concurrency,
        stream=end.stream,
        reasoning_effort=end.reasoning_effort,
        tools_json=tools,
        shared_prefix=end.shared_prefix,
    )
    return asked.values(end.tool_calls)


def _refuse_half_a_length(source: Source, low: Mapping[str, Value], high: Mapping[str, Value]) -> None:
    if (low[INPUT_TOKENS] is None) != (high[INPUT_TOKENS] is None):
        end = "minimal" if low[INPUT_TOKENS] is None else "production"
        mend = "Give both ends the number of tokens, as the server counts them, or neither, to send the prompt whole."
        raise source.error((end,), "input_tokens is missing, although the other end has it", mend)


def _excluded(scenario: Scenario, source: Source, ends: Ends) -> Ends:
    for position, name in enumerate(scenario.exclude):
        parts = parts_named(name, ends.differing)
        for part in parts:
            if part not in ends.differing:
                known = f"The ends differ in: {', '.join(ends.differing) or 'nothing'}."
                raise source.error(("exclude", position), f"{name!r} is no difference between the ends", known)
            ends = ends.levelled(part)
    return ends


def parts_named(name: str, differing: Sequence[str]) -> tuple[str, ...]:
    """What a name in a scenario stands for: a request value, a flag, an `env:NAME`, or several flags."""
    match name:
        case "prefix_caching":
            return (PREFIX_CACHING_FLAG,)
        case "nodes":
            return tuple(flag for flag in NODE_FLAGS if flag in differing) or NODE_FLAGS[:1]
        case _:
            return (name if name in REQUEST_DEFAULTS else canonical_part(name),)
