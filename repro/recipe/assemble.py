"""From a checked scenario file to a scene: the two ends, everything that differs accounted for, and errors that say where.

Two placeholders are replaced in commands and in values of the environment: `{python}` by the Python that runs repro,
`{here}` by the scenario's folder.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from repro.domain.command import Command, difference, is_listen, is_secret, parse
from repro.domain.request import Expectation
from repro.domain.scene import (
    ENVIRONMENT,
    INPUT_TOKENS,
    NODES,
    PREFIX_CACHING,
    PREFIX_CACHING_FLAG,
    REQUEST_DEFAULTS,
    Scene,
    part_value,
    with_part,
)
from repro.domain.variable import Value, Variable
from repro.errors import ReproError
from repro.recipe.asked import Asked
from repro.recipe.couplings import NODE_FLAGS
from repro.recipe.find import find_recipe
from repro.recipe.load import checked
from repro.recipe.model import Recipe
from repro.recipe.request_file import request_of, tools_of
from repro.recipe.scenario import End, Scenario, VariablePart
from repro.recipe.source import Keys, Source
from repro.recipe.variables import (
    canonical_part,
    differing_parts,
    differing_values,
    fixed_values,
    grouped,
    launch_variable,
    request_variable,
)
from repro.redact.environment_names import is_secret_name
from repro.redact.shapes import holds_secret

Values = dict[str, Value]


def load_scenario(path: Path) -> Scene:
    """Read a scenario file and everything it names; InvalidFile (or UsageError for its recipe) when it cannot be used."""
    source = Source.read(path)
    scenario = checked(source, Scenario)
    named = scenario.recipe
    beside = source.folder / named
    recipe = find_recipe(str(beside) if named.endswith(".toml") else named)
    return to_scene(scenario, source, recipe)


def to_scene(scenario: Scenario, source: Source, recipe: Recipe) -> Scene:
    """The scene that a checked scenario describes; `source` is its file, for what it names and for errors."""
    return _Assembly(scenario, source, recipe).scene()


class _Assembly:
    """One reading of one scenario. `minimal` and `production` are worked on until both ends are final."""

    def __init__(self, scenario: Scenario, source: Source, recipe: Recipe) -> None:
        self.scenario, self.source, self.recipe = scenario, source, recipe
        self.request = request_of(scenario.request, source)
        self.tools = tools_of(scenario.request, source)
        self.minimal = self._command(("minimal", "command"), scenario.minimal)
        self.production = self._command(("production", "command"), scenario.production)
        self._write_prefix_caching_out()
        self.low, self.high = self._values(scenario.minimal), self._values(scenario.production)

    def scene(self) -> Scene:
        self._refuse_different_starts()
        self._refuse_half_a_length()
        self._apply_exclude()
        variables = self._variables()
        environment = self.scenario.environment
        expect = self.scenario.request.expect.model_dump()
        try:
            return Scene(
                name=self.scenario.name,
                variables=variables,
                minimal=self.minimal,
                production=self.production,
                environment=tuple(sorted((k, self._placed(self._open(k, v))) for k, v in environment.env.items())),
                environment_from=tuple(sorted(set(environment.env_from))),
                request=self.request,
                path=self.scenario.request.path,
                tools_json=self.tools,
                fixed_request=fixed_values(self.low, self.high),
                expectation=Expectation(**{**expect, "finish_reasons": tuple(expect["finish_reasons"])}),
                recipe=self.recipe.name,
                recipe_digest=self.recipe.digest,
                precision=self.scenario.precision,
                seed=self.scenario.seed,
            )
        except ValueError as error:
            mend = "Write the two commands in the same way, so that they differ in flags and NAME=value alone."
            raise self.source.error(("production", "command"), str(error), mend) from error

    def _placed(self, text: str) -> str:
        return text.replace("{python}", sys.executable).replace("{here}", str(self.source.folder))

    def _open(self, name: str, value: str) -> str:
        if is_secret_name(name) or holds_secret(value):
            raise self.source.error(
                ("environment", "env", name),
                "this is a secret, and secrets are never written into files",
                f'Take it out, export it and write env_from = ["{name}"].',
            )
        return value

    def _command(self, keys: Keys, end: End) -> Command:
        words = end.command
        placed = self._placed(words) if isinstance(words, str) else [self._placed(word) for word in words]
        try:
            command = parse(placed)
        except ReproError as error:
            raise self.source.error(keys, error.message, error.hint) from error
        for flag in dict.fromkeys(f.name for f in command.flags):
            if is_secret(flag):
                raise self.source.error(
                    keys,
                    f"{flag} holds a secret, and secrets are never written into files",
                    "Take it out and name the variable that vLLM reads instead (VLLM_API_KEY, HF_TOKEN) in env_from.",
                )
            if is_listen(flag):
                # Where production listens is no property of the fault, and repro's servers get ports of their own.
                command = command.with_flag(flag, None)
        for name, value in command.environment:
            if is_secret_name(name) or holds_secret(value):
                mend = f'Take it out, export it and write env_from = ["{name}"].'
                raise self.source.error(keys, f"{name} is a secret, and secrets are never written into files", mend)
        return command

    def _write_prefix_caching_out(self) -> None:
        """Where one end says it, the other does too: the default changed between versions."""
        ends = (self.minimal, self.production)
        if any(end.flag(PREFIX_CACHING_FLAG) is not None for end in ends):
            default = self.recipe.caches_prefixes(None)
            self.minimal, self.production = (
                end if end.flag(PREFIX_CACHING_FLAG) is not None else end.with_flag(PREFIX_CACHING_FLAG, default)
                for end in ends
            )

    def _values(self, end: End) -> Values:
        least = self.recipe.minimal_request
        seeded = self.request is None
        asked = Asked(
            request=self.request,
            input_tokens=end.input_tokens or (least.input_tokens if seeded else None),
            max_tokens=end.max_tokens or (least.max_tokens if seeded else None),
            concurrency=end.concurrency,
            stream=end.stream,
            reasoning_effort=end.reasoning_effort,
            tools_json=self.tools,
            shared_prefix=end.shared_prefix,
        )
        return asked.values(end.tool_calls)

    def _refuse_different_starts(self) -> None:
        """Only flags and environment can vary; everything around them is one and the same server."""
        for change in difference(self.minimal, self.production):
            if not change.name.startswith(("-", ENVIRONMENT)):
                raise self.source.error(
                    ("production", "command"),
                    f"the ends differ in the {change.name} ({change.left!r} and {change.right!r}), which no search can vary",
                    f"Give both ends the same {change.name}.",
                )

    def _refuse_half_a_length(self) -> None:
        if (self.low[INPUT_TOKENS] is None) != (self.high[INPUT_TOKENS] is None):
            end = "minimal" if self.low[INPUT_TOKENS] is None else "production"
            raise self.source.error(
                (end,),
                "input_tokens is missing, although the other end has it",
                "Give both ends the number of tokens, as the server counts them, or neither, to send the prompt whole.",
            )

    def _apply_exclude(self) -> None:
        parts = differing_parts(self.minimal, self.production)
        values = differing_values(self.low, self.high)
        for position, name in enumerate(self.scenario.exclude):
            part = canonical_part(name) if name not in REQUEST_DEFAULTS else name
            if part in values:
                self.low[part] = self.high[part]
            elif part in parts:
                self.minimal = with_part(self.minimal, part, part_value(self.production, part))
            else:
                known = self._near(part, [*values, *parts])
                raise self.source.error(("exclude", position), f"{name!r} is no difference between the ends", known)

    def _variables(self) -> tuple[Variable, ...]:
        parts = differing_parts(self.minimal, self.production)
        values = differing_values(self.low, self.high)
        if not parts and not values:
            raise self.source.error(
                ("production",), "both ends are equal, so there is nothing to search", "Give production its settings."
            )
        taken: list[str] = []
        variables: list[Variable] = []
        for position, listed in enumerate(self.scenario.variable):
            keys: Keys = ("variable", position)
            mine = (listed.name,) if listed.name in REQUEST_DEFAULTS else self._parts_of(listed, parts)
            self._refuse_unknown(keys, listed, mine, [*values, *parts], taken)
            taken += mine
            variables.append(self._variable(keys, listed, mine))
        self._refuse_unlisted([name for name in (*values, *parts) if name not in taken])
        return tuple(variables)

    def _variable(self, keys: Keys, listed: VariablePart, mine: tuple[str, ...]) -> Variable:
        levels = tuple(listed.levels)
        try:
            if listed.name in REQUEST_DEFAULTS:
                return request_variable(listed.name, self.low[listed.name], self.high[listed.name], levels)
            name = listed.name if listed.name in (PREFIX_CACHING, NODES) else mine[0]
            return launch_variable(name, mine, self.minimal, self.production, levels)
        except ValueError as error:
            raise self.source.error((*keys, "levels"), str(error), "Change the ends or take the levels out.") from error

    @staticmethod
    def _parts_of(listed: VariablePart, differing: Iterable[str]) -> tuple[str, ...]:
        couple = tuple(canonical_part(name) for name in listed.couple)
        match listed.name:
            case "prefix_caching":
                return (PREFIX_CACHING_FLAG, *couple)
            case "nodes":
                return couple or tuple(flag for flag in NODE_FLAGS if flag in differing) or ("--nnodes",)
            case name:
                return (canonical_part(name), *couple)

    def _refuse_unknown(
        self, keys: Keys, listed: VariablePart, mine: tuple[str, ...], differing: list[str], taken: list[str]
    ) -> None:
        for number, part in enumerate(mine):
            where: Keys = (*keys, "name") if number == 0 or not listed.couple else (*keys, "couple")
            if part in taken or part in mine[:number]:
                raise self.source.error(where, f"{part} is listed twice", "Keep one of the two.")
            if part not in differing:
                raise self.source.error(where, *self._no_difference(part, differing))

    def _no_difference(self, part: str, differing: list[str]) -> tuple[str, str]:
        if part in REQUEST_DEFAULTS:
            both = self.high[part]
        else:
            both = part_value(self.production, part)
        if both is None or both == REQUEST_DEFAULTS.get(part, None):
            return f"{part!r} is on neither end, so it is no variable", self._near(part, differing)
        return f"{part!r} is {both!r} on both ends, so it is no variable", self._near(part, differing)

    def _refuse_unlisted(self, names: list[str]) -> None:
        if not names:
            return
        lines = [f'[[variable]] name = "{name}"' for name in self._as_variables(names)]
        if not self.scenario.variable:
            raise self.source.error((), "no [[variable]] is listed", f"The ends differ in: {'; '.join(lines)}.")
        told = ", ".join(f"{n} (minimal: {self._shown(n, 0)}; production: {self._shown(n, 1)})" for n in names)
        raise self.source.error(
            ("production", "command"),
            f"the ends also differ in {told}, which is listed nowhere",
            f"Add {'; '.join(lines)}, name it in the `couple` of the variable it belongs to, or name it in `exclude`.",
        )

    @staticmethod
    def _as_variables(names: list[str]) -> list[str]:
        values = [name for name in names if name in REQUEST_DEFAULTS]
        return [*values, *(name for name, _ in grouped(n for n in names if n not in values))]

    def _shown(self, name: str, end: int) -> str:
        value = (self.low, self.high)[end][name] if name in REQUEST_DEFAULTS else None
        if name not in REQUEST_DEFAULTS:
            value = part_value((self.minimal, self.production)[end], name)
        return "absent" if value is None else repr(value)

    @staticmethod
    def _near(name: str, differing: list[str]) -> str:
        near = get_close_matches(name, differing, n=1)
        meant = f"Did you mean {near[0]!r}? " if near else ""
        return f"{meant}The ends differ in: {', '.join(differing) or 'nothing'}."
