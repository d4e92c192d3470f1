"""From a production command to both ends of a search: production minus what the recipe does not require is minimal.

The parallel layout stays production's on both ends, whatever the recipe says: making it smaller until something runs
would hide what fails. What cannot be compared at all (where the server listens, secrets) is taken off both ends.
Everything that a reader could not guess is told in `notes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from repro.domain.command import Command, as_int, is_layout, is_listen, is_secret
from repro.domain.request import CHAT, Expectation
from repro.domain.scene import (
    ENVIRONMENT,
    NODES,
    PREFIX_CACHING,
    PREFIX_CACHING_FLAG,
    TOOL_CALLS,
    Scene,
    with_part,
)
from repro.domain.variable import Value, Variable
from repro.recipe.asked import Asked
from repro.recipe.couplings import NODE_FLAGS
from repro.recipe.model import Recipe
from repro.recipe.request_ends import request_ends
from repro.recipe.variables import (
    differing_parts,
    differing_values,
    fixed_values,
    grouped,
    launch_variable,
    request_variable,
)
from repro.redact.environment_names import is_secret_name, split_environment
from repro.redact.redactor import Redactor
from repro.redact.shapes import holds_secret

# vLLM and the hub read these where the flag is not given.
SECRET_VARIABLES = {"--api-key": "VLLM_API_KEY", "--hf-token": "HF_TOKEN"}
_TOOL_PARSER = "--tool-call-parser"


@dataclass(frozen=True)
class Captured:
    """What a running process, a container or the user told besides the command."""

    environment: Mapping[str, str] = field(default_factory=dict)
    environment_from: tuple[str, ...] = ()
    vllm_version: str | None = None


NOTHING_CAPTURED = Captured()
AN_ANSWER = Expectation()


@dataclass(frozen=True)
class Derived:
    """Both ends and what their reader has to know."""

    scene: Scene
    notes: tuple[str, ...]


def derive(
    production: Command,
    recipe: Recipe,
    asked: Asked,
    *,
    name: str,
    captured: Captured = NOTHING_CAPTURED,
    expectation: Expectation = AN_ANSWER,
    precision: float = 0.05,
    seed: int = 0,
) -> Derived:
    """Derive minimal and the variables between it and production.

    `asked` are production's request values. Of `captured.environment` what belongs to a launch is fixed on both ends
    and its secrets become names; NAME=value written in the command itself is a variable, unless the recipe needs it.
    Without `captured.vllm_version` the newest version's prefix caching default is assumed and noted.
    """
    notes = _doubts(production)
    production, passed_on = _without_listening_and_secrets(production, notes)
    fixed, secrets = split_environment(captured.environment)
    production = _with_explicit_prefix_caching(production, recipe, captured.vllm_version, notes)
    minimal = _minimal(production, recipe, notes)
    asked, low, high = request_ends(asked, recipe, production, notes)
    scene = Scene(
        name=name,
        variables=_in_order(minimal, production, low, high),
        minimal=minimal,
        production=production,
        environment=tuple(sorted(fixed.items())),
        environment_from=tuple(sorted({*captured.environment_from, *secrets, *passed_on})),
        request=asked.request,
        path=asked.request.path if asked.request else CHAT,
        tools_json=asked.tools_json,
        fixed_request=fixed_values(low, high),
        expectation=expectation,
        recipe=recipe.reference,
        recipe_digest=recipe.digest,
        precision=precision,
        seed=seed,
    )
    return Derived(scene, tuple(notes))


def _doubts(production: Command) -> list[str]:
    notes = []
    if production.unread:
        names = ", ".join(production.unread)
        notes.append(f"the log does not say the value of {names}; complete it on both ends, or production is another.")
    if production.unknown_flags:
        names = ", ".join(production.unknown_flags)
        notes.append(f"no vLLM version is known to have {names}; it is kept, since a wrong flag may be the fault.")
    return notes


def _without_listening_and_secrets(command: Command, notes: list[str]) -> tuple[Command, tuple[str, ...]]:
    passed_on: list[str] = []
    for flag in dict.fromkeys(f.name for f in command.flags):
        if is_secret(flag):
            command = command.with_flag(flag, None)
            variable = SECRET_VARIABLES.get(flag)
            if variable:
                passed_on.append(variable)
                notes.append(f"{flag} is taken off; export its value as {variable}, which is passed on by name only.")
            else:
                notes.append(f"{flag} names a secret and is taken off both ends.")
        elif is_listen(flag):
            command = command.with_flag(flag, None)
            notes.append(f"{flag} is taken off: repro chooses where its own servers listen.")
    for variable, value in command.environment:
        if is_secret_name(variable) or holds_secret(value):
            command = command.with_environment(variable, None)
            passed_on.append(variable)
            notes.append(
                f"{variable} is passed on by name only: export it before a search; its value is never written."
            )
    for written in command.flags:
        if Redactor().argv(written.argv()) != written.argv():
            notes.append(
                f"{written.name} holds a secret that vLLM takes in no other way: it is masked in every file, and only "
                "a search that is given the command itself can start this server."
            )
    return command, tuple(passed_on)


def _with_explicit_prefix_caching(command: Command, recipe: Recipe, version: str | None, notes: list[str]) -> Command:
    """Its default changed between versions, so both ends say it, and an image change cannot switch it silently."""
    if command.flag(PREFIX_CACHING_FLAG) is not None:
        return command
    on = recipe.caches_prefixes(version)
    of = f"vLLM {version}" if version else "current vLLM versions"
    written = PREFIX_CACHING_FLAG if on else f"--no-{PREFIX_CACHING_FLAG[2:]}"
    notes.append(
        f"production says nothing about prefix caching; it is {'on' if on else 'off'} by default in {of}, "
        f"so {written} is written out."
    )
    return command.with_flag(PREFIX_CACHING_FLAG, on)


def _minimal(production: Command, recipe: Recipe, notes: list[str]) -> Command:
    kept = {*recipe.required.as_production, "--model", "--config"}
    take_nodes = _nodes_may_vary(production, recipe, notes)
    minimal = production
    for flag in dict.fromkeys(f.name.partition(".")[0] for f in production.flags):
        node = flag in NODE_FLAGS
        stays = (node and not take_nodes) or (is_layout(flag) and not node) or flag in kept
        if not stays and flag not in recipe.required.flags and flag != PREFIX_CACHING_FLAG:
            minimal = minimal.with_flag(flag, None)
    for flag, value in recipe.required.flags.items():
        if not is_layout(flag):
            minimal = minimal.with_flag(flag, _flag_value(value))
        elif production.flag(flag) != _flag_value(value):
            notes.append(f"the recipe has {flag} {value}; production's parallel layout is kept on both ends.")
    for variable, _ in production.environment:
        if variable not in recipe.required.environment_as_production:
            minimal = with_part(minimal, ENVIRONMENT + variable, recipe.required.environment.get(variable))
    for variable, text in recipe.required.environment.items():
        minimal = with_part(minimal, ENVIRONMENT + variable, text)
    if production.flag("--config") is not None:
        notes.append("what --config's file says is on both ends; write it out as flags to make it variables.")
    return minimal.with_flag(PREFIX_CACHING_FLAG, False)


def _flag_value(value: object) -> str | bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    return tuple(value) if isinstance(value, list) else str(value)


def _nodes_may_vary(production: Command, recipe: Recipe, notes: list[str]) -> bool:
    """Only where model and layout fit one node: a layout too wide for the node would fail by itself."""
    if not recipe.fits_one_node or production.flag("--nnodes") is None:
        return False
    ranks = 1
    for flag in ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"):
        value = production.flag(flag)
        ranks *= (as_int(value) if isinstance(value, str) else None) or 1
    one_node = max((gpu.count_min for gpu in recipe.compatibility.gpus), default=ranks)
    if ranks > one_node:
        notes.append(
            f"the nodes stay: production's layout has {ranks} ranks and one node of this recipe {one_node} GPUs."
        )
    return ranks <= one_node


def _in_order(
    minimal: Command, production: Command, low: dict[str, Value], high: dict[str, Value]
) -> tuple[Variable, ...]:
    """The order of trial: requests (they need no new server), nodes, prefix caching, tools, flags, environment."""
    groups = grouped(differing_parts(minimal, production))
    by_name = dict(groups)
    asked = list(differing_values(low, high))
    if _TOOL_PARSER in by_name and TOOL_CALLS in asked:
        # Without its parser a server refuses every request with tools, which would say nothing about the fault.
        asked.remove(TOOL_CALLS)
        first = [NODES, PREFIX_CACHING, _TOOL_PARSER, TOOL_CALLS]
    else:
        first = [NODES, PREFIX_CACHING, _TOOL_PARSER]
    rest = [name for name, _ in groups if name not in first]
    names = [
        *first,
        *(n for n in rest if not n.startswith(ENVIRONMENT)),
        *(n for n in rest if n.startswith(ENVIRONMENT)),
    ]
    variables = [request_variable(name, low[name], high[name]) for name in asked]
    for name in names:
        if name == TOOL_CALLS:
            variables.append(request_variable(name, low[name], high[name]))
        elif name in by_name:
            variables.append(launch_variable(name, by_name[name], minimal, production))
    return tuple(variables)
