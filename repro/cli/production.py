"""From what the user gave (words, a file, a process, a container, a log, a scenario) to the scene to work on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click
import yaml

from repro.cli.masks import redactor_for
from repro.cli.options import Source, Wanted
from repro.cli.recipe_choice import choose_here
from repro.domain.command import Command, apply_config, parse, parse_non_default_args
from repro.domain.request import CHAT
from repro.domain.scene import Scene
from repro.errors import InvalidFile, NotVllm, UnresolvedWrapper, UsageError
from repro.machine.containers import inspect_container
from repro.machine.processes import descendants, describe
from repro.recipe.asked import Asked
from repro.recipe.assemble import load_scenario
from repro.recipe.find import CPU_DEMO, find_recipe
from repro.recipe.minimal import SECRET_VARIABLES, Captured, Derived, derive
from repro.recipe.model import Recipe
from repro.recipe.request_file import read_request, read_tools
from repro.recipe.writable import writable
from repro.redact.environment_names import is_secret_name, split_environment
from repro.redact.shapes import holds_secret
from repro.snapshot.libraries import vllm_version


@dataclass(frozen=True)
class Taken:
    """A production command with the environment that was captured beside it, and what its reader has to know."""

    command: Command
    captured: Captured
    notes: tuple[str, ...] = ()


def derive_scene(source: Source, wanted: Wanted, precision: float) -> Derived:
    """Both ends of the search that this production command begins. Raises UsageError, NotVllm, InvalidFile."""
    taken = take(source)
    command = _with_config(taken.command)
    if command.model is None:
        raise UsageError("the command names no model", "write it as in `vllm serve MODEL …`")
    version = vllm_version((*command.program, *command.arguments()), {**os.environ, **taken.captured.environment})
    recipe, why = _recipe(wanted.recipe, command.model, version)
    asked = Asked(
        request=read_request(wanted.request, CHAT) if wanted.request else None,
        input_tokens=wanted.input_tokens,
        max_tokens=wanted.max_tokens,
        concurrency=wanted.concurrency,
        stream=True if wanted.stream else None,
        tools_json=read_tools(wanted.tools) if wanted.tools else None,
    )
    name = Path(command.model.rstrip("/")).name.lower()
    captured = replace(taken.captured, vllm_version=version)
    derived = derive(command, recipe, asked, name=name, captured=captured, precision=precision)
    return _written(replace(derived, notes=(why, *taken.notes, *derived.notes)))


def _recipe(asked: str | None, model: str, version: str | None) -> tuple[Recipe, str]:
    """The recipe and why it is this one: asked for, the CPU's where vLLM is built for that, else the model's."""
    if asked is not None:
        return find_recipe(asked), f"recipe {asked}, as asked"
    if version is not None and version.endswith("+cpu"):
        return find_recipe(CPU_DEMO), f"recipe {CPU_DEMO}, since vLLM {version} is built for CPU"
    name, why = choose_here(model)
    return find_recipe(name), why


def take(source: Source) -> Taken:
    """The production command, wherever it is. Exactly one place may be named."""
    given = [p for p in (source.words, source.file, source.pid, source.container, source.log) if p not in ((), None)]
    if len(given) != 1:
        raise UsageError(
            "give the production command once: after `--`, or by --file, --pid, --container or --log",
            "for example: repro bisect --input-tokens 60000 -- vllm serve MODEL --tensor-parallel-size 8",
        )
    if source.pid is not None:
        return _from_process(source.pid)
    if source.container is not None:
        return _from_container(source.container)
    if source.log is not None:
        return Taken(_from_log(source.log), Captured())
    if source.file is not None:
        return _typed(parse(_text(source.file)))
    words = source.words
    return _typed(parse(words[0] if len(words) == 1 else words))


def _typed(command: Command) -> Taken:
    """A command that is typed here would get this shell's environment, so both ends do; a container gets none of it."""
    _refuse_own_options(command)
    _lend_secrets(command)
    if command.container is not None:
        return Taken(command, Captured())
    environment, secret = split_environment(os.environ)
    return Taken(command, Captured(environment, secret))


def _refuse_own_options(command: Command) -> None:
    """An option of repro behind `--` would become a variable of production, and a launch would start."""
    context = click.get_current_context(silent=True)
    own = {opt for p in context.command.params for opt in p.opts if opt.startswith("--")} if context else set()
    misplaced = [name for name in command.unknown_flags if name in own]
    if misplaced:
        raise UsageError(
            f"{', '.join(misplaced)} stands behind `--`, where everything belongs to vLLM, which has no such flag",
            "put it before `--`",
        )


def _lend_secrets(command: Command) -> None:
    """Secrets that were typed reach the server as if they had been exported: by name, for the life of this process."""
    typed = {name: value for name, value in command.environment if is_secret_name(name) or holds_secret(value)}
    for flag, variable in SECRET_VARIABLES.items():
        value = command.flag(flag)
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(first, str):
            typed[variable] = first
    for name, value in typed.items():
        os.environ.setdefault(name, value)


def _from_process(pid: int) -> Taken:
    """The process itself, or the vLLM server among its descendants: a wrapper script is resolved by what it started."""
    facts = describe(pid)
    if not facts.alive:
        raise UsageError(f"there is no process {pid}", "take the pid from `ps`, or give the command after `--`")
    for candidate in (facts, *descendants(pid)):
        if candidate.argv is None:
            continue
        try:
            command = parse(candidate.argv)
        except (NotVllm, UnresolvedWrapper):
            continue
        environment, secret = split_environment(candidate.environment or {})
        return Taken(command, Captured(environment, secret))
    seen = " ".join(facts.argv or ()) or facts.unreadable.get("argv", "nothing readable")
    raise NotVllm(
        f"neither process {pid} nor one that it started is a vLLM server: {seen}",
        'give the pid of `vllm serve`, or a log with its "non-default args" line by --log',
    )


def _from_container(name: str) -> Taken:
    found = inspect_container(name)
    try:
        command = parse(found.argv)
    except (NotVllm, UnresolvedWrapper):
        command = _from_text(found.log, f"container {name}")
    environment, secret = split_environment(found.environment)
    note = (
        f"the command is that inside container {name} (image {found.image}, id {found.image_id[:19]}); "
        "it is started as a process here, so its paths and libraries must be those of this machine"
    )
    return Taken(command, Captured(environment, secret), (note,))


def _from_log(path: Path) -> Command:
    return _from_text(_text(path), str(path))


def _from_text(text: str, where: str) -> Command:
    for line in text.splitlines():
        command = parse_non_default_args(line)
        if command is not None:
            return command
    raise InvalidFile(
        f'{where}: no line with vLLM\'s "non-default args" or "args: Namespace", so the command is not known',
        "give the command after `--`, or a log that holds the beginning of the start-up",
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror or error}", "name a file that can be read") from error


def _with_config(command: Command) -> Command:
    """Every key of a `--config` file as a flag of its own, so that each can be a variable."""
    if command.config_path is None:
        return command
    path = Path(command.config_path)
    try:
        loaded = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:
        raise InvalidFile(f"{path}: no YAML: {error}", "mend the file that --config names") from error
    if not isinstance(loaded, Mapping):
        raise InvalidFile(f"{path}: holds no mapping of flags", "vLLM wants `flag: value` lines there")
    return apply_config(command, loaded).with_flag("--config", None)


def ready_scene(scenario: Path | None, source: Source, wanted: Wanted, precision: float | None) -> Derived:
    """The scene of a scenario file, or else the one derived from a production command; what it holds can be written.

    Raises UsageError for a scenario with options that belong to a command: they would have no effect.
    """
    if scenario is None:
        return derive_scene(source, wanted, 0.05 if precision is None else precision)
    if source != Source():
        raise UsageError("a scenario and a command were given", "give one of the two")
    if wanted != Wanted():
        raise UsageError(
            "options about production's requests or its recipe were given beside a scenario, which has its own",
            "change them in the scenario file",
        )
    scene: Scene = load_scenario(scenario)
    return _written(Derived(scene if precision is None else replace(scene, precision=precision), ()))


def _written(derived: Derived) -> Derived:
    scene, notes = writable(derived.scene, redactor_for(derived.scene.environment_from))
    return Derived(scene, (*derived.notes, *notes))
