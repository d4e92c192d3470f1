"""From a checked scenario file to a scene: all that it names is read, and all that differs is accounted for."""

from __future__ import annotations

from pathlib import Path

from repro.domain.request import Expectation
from repro.domain.scene import Scene
from repro.errors import UsageError
from repro.recipe.ends import placed, read_ends, refuse_secret
from repro.recipe.find import find_recipe
from repro.recipe.listing import listed_variables
from repro.recipe.load import checked
from repro.recipe.model import Recipe
from repro.recipe.request_file import request_of, tools_of
from repro.recipe.scenario import Environment, Expect, Scenario
from repro.recipe.source import Source
from repro.recipe.variables import fixed_values


def load_scenario(path: Path) -> Scene:
    """Read a scenario file and everything it names; InvalidFile when it cannot be used."""
    source = Source.read(path)
    scenario = checked(source, Scenario)
    own = scenario.recipe.endswith(".toml")
    try:
        recipe = find_recipe(str(source.folder / scenario.recipe) if own else scenario.recipe)
    except UsageError as error:
        raise source.error(("recipe",), error.message, error.hint) from error
    return to_scene(scenario, source, recipe)


def to_scene(scenario: Scenario, source: Source, recipe: Recipe) -> Scene:
    """The scene that a checked scenario describes; `source` is its file, for what it names and for errors."""
    request, tools = request_of(scenario.request, source), tools_of(scenario.request, source)
    ends = read_ends(scenario, source, recipe, request, tools)
    variables = listed_variables(scenario.variable, source, ends)
    try:
        return Scene(
            name=scenario.name,
            variables=variables,
            minimal=ends.minimal,
            production=ends.production,
            environment=_environment(scenario.environment, source),
            environment_from=tuple(sorted(set(scenario.environment.env_from))),
            request=request,
            path=scenario.request.path,
            tools_json=tools,
            fixed_request=fixed_values(ends.low, ends.high),
            expectation=_expectation(scenario.request.expect),
            recipe=recipe.reference,
            recipe_digest=recipe.digest,
            precision=scenario.precision,
            seed=scenario.seed,
        )
    except ValueError as error:
        mend = "Write the two commands in the same way, so that they differ in flags and NAME=value alone."
        raise source.error(("production", "command"), str(error), mend) from error


def _environment(part: Environment, source: Source) -> tuple[tuple[str, str], ...]:
    for name, value in part.env.items():
        refuse_secret(source, ("environment", "env", name), name, value)
    return tuple(sorted((name, placed(value, source)) for name, value in part.env.items()))


def _expectation(expect: Expect) -> Expectation:
    return Expectation(**{**expect.model_dump(), "finish_reasons": tuple(expect.finish_reasons)})
