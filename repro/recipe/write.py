"""A scene as a scenario file for people: commented, in the order of trial, and read back as the same scene.

Everything written passes the redactor once more. A scene whose secrets were taken off by `derive` has nothing to mask;
where something is masked all the same, the mask shows in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from textwrap import shorten, wrap
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.items import AoT, Array, InlineTable, String, Table

from repro.domain.command import Command
from repro.domain.request import CHAT, Expectation
from repro.domain.scene import (
    CONCURRENCY,
    INPUT_TOKENS,
    MAX_TOKENS,
    PREFIX_CACHING,
    REASONING_EFFORT,
    REQUEST_DEFAULTS,
    Scene,
)
from repro.domain.variable import Kind, Value, Variable
from repro.recipe.asked import Asked
from repro.recipe.couplings import reason_for
from repro.redact.redactor import Redactor

_WIDTH = 116
_LONGEST_VALUE = 80
_MASKED = "# Secrets were masked in this file (***masked:...***); it cannot start the server that they belong to.\n"
_ALWAYS = (INPUT_TOKENS, MAX_TOKENS, CONCURRENCY)
_TOP = (
    "One situation to search: `minimal` is known or hoped to work, `production` fails.",
    "Values live in the two ends alone. [[variable]] lists what differs, in the order of trial; move them as you like.",
)


def from_scene(
    scene: Scene,
    *,
    notes: Iterable[str] = (),
    recipe_file: str | None = None,
    request_file: str | None = None,
    redactor: Redactor | None = None,
) -> str:
    """The scenario file's text. `recipe_file` and `request_file` name files beside it: a recipe of the user's own,
    which is otherwise named by its full path, and a JSON file that holds the request's body."""
    redactor = redactor or Redactor()
    before = sum(redactor.counts.values())
    document = _head(scene, [redactor.text(note) for note in notes], recipe_file or scene.recipe)
    if scene.environment or scene.environment_from:
        document.add(tomlkit.nl())
        document.add("environment", _environment(scene, redactor))
    document.add(tomlkit.nl())
    document.add("minimal", _end(scene, scene.minimal, False, redactor))
    document.add(tomlkit.nl())
    document.add("production", _end(scene, scene.production, True, redactor))
    request = _request(scene, request_file, redactor)
    if request is not None:
        document.add(tomlkit.nl())
        document.add("request", request)
    document.add(tomlkit.nl())
    document.add("variable", _variables(scene.variables, redactor))
    text = tomlkit.dumps(document)
    masked = sum(redactor.counts.values()) - before
    return f"{_MASKED}{text}" if masked else text


def _head(scene: Scene, notes: Iterable[str], recipe: str) -> TOMLDocument:
    document = tomlkit.document()
    for line in _TOP:
        document.add(tomlkit.comment(line))
    for note in notes:
        for line in wrap(f"Note: {note}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False):
            document.add(tomlkit.comment(line))
    document.add("schema", tomlkit.item("repro/scenario"))
    document.add("version", tomlkit.item(1))
    document.add("name", tomlkit.item(scene.name))
    document.add("recipe", tomlkit.item(recipe))
    document.add("precision", _commented(scene.precision, "how close a threshold is narrowed; 0 is exact"))
    if scene.seed:
        document.add("seed", tomlkit.item(scene.seed))
    return document


def _commented(value: Any, comment: str) -> Any:
    return tomlkit.item(value).comment(comment)


def _environment(scene: Scene, redactor: Redactor) -> Table:
    table = tomlkit.table()
    table.add(tomlkit.comment("The same on both ends. What a command sets itself comes on top."))
    if scene.environment:
        inline: InlineTable = tomlkit.inline_table()
        inline.update(redactor.json(dict(scene.environment)))
        table.add("env", inline)
    if scene.environment_from:
        table.add("env_from", _commented(list(scene.environment_from), "by name only; values are never written"))
    return table


def _end(scene: Scene, command: Command, production: bool, redactor: Redactor) -> Table:
    table = tomlkit.table()
    table.add("command", _argv(command, redactor))
    # An absent key is what the request itself says, so only what differs from that has to be written.
    unsaid = Asked(request=scene.request, tools_json=scene.tools_json).values()
    values = {**REQUEST_DEFAULTS, **dict(scene.fixed_request)}
    for variable in scene.variables:
        if variable.kind is Kind.REQUEST:
            values[variable.name] = variable.production if production else variable.minimal
    for name, value in values.items():
        if value is not None and (name in _ALWAYS or value != unsaid[name]):
            table.add(name, tomlkit.item(value))
        elif name == REASONING_EFFORT and value != unsaid[name]:
            table.add(name, tomlkit.item(""))
    return table


def _argv(command: Command, redactor: Redactor) -> Array | str:
    """A list with one flag a line; a shell line for what is no plain argument list (sudo, bash -c, a container)."""
    if command.container is not None or command.wrapper or command.launcher or command.environment_from:
        return redactor.text(command.shell())
    begins = {flag.argv()[0] for flag in command.flags}
    lines: list[list[str]] = [[*(f"{name}={value}" for name, value in command.environment)]]
    for token in command.argv():
        if token in begins:
            lines.append([])
        lines[-1].append(token)
    masked = iter(redactor.argv([token for line in lines for token in line]))
    array = tomlkit.array()
    for line in lines:
        array.add_line(*(next(masked) for _ in line), indent="  ")
    array.add_line(indent="")
    return array


def _request(scene: Scene, request_file: str | None, redactor: Redactor) -> Table | None:
    table = tomlkit.table()
    if scene.request is not None:
        table.add(tomlkit.comment("Production's own request; input_tokens keeps the first tokens of its prompt."))
        table.add("path", tomlkit.item(scene.request.path))
        if request_file is not None:
            table.add("file", tomlkit.item(request_file))
        else:
            body = redactor.json(scene.request.body)
            table.add("body_json", _json_text(json.dumps(body, ensure_ascii=False, indent=2)))
    elif scene.path != CHAT:
        table.add("path", tomlkit.item(scene.path))
    if scene.tools_json is not None:
        tools = redactor.json(json.loads(scene.tools_json))
        table.add("tools_json", _json_text(json.dumps(tools, ensure_ascii=False, indent=2)))
    expect = {k: v for k, v in asdict(scene.expectation).items() if v != getattr(Expectation(), k)}
    if expect:
        inner = tomlkit.table()
        for key, value in expect.items():
            inner.add(key, tomlkit.item(list(value) if isinstance(value, tuple) else value))
        table.add("expect", inner)
    return table if len(table) else None


def _json_text(text: str) -> String:
    """Several lines without escapes where the text allows it, so that JSON looks like JSON."""
    if "'''" in text or not all(c.isprintable() or c == "\n" for c in text):
        return tomlkit.string(text)
    return tomlkit.string(text + "\n", literal=True, multiline=True)


def _variables(variables: Iterable[Variable], redactor: Redactor) -> AoT:
    several = tomlkit.aot()
    for variable in variables:
        table = tomlkit.table()
        low, high = (redactor.text(_shown(value)) for value in (variable.minimal, variable.production))
        table.add(tomlkit.comment(f"minimal: {low}; production: {high}"))
        table.add("name", tomlkit.item(variable.name))
        couple = [part for part in variable.parts if part != variable.name]
        if couple and variable.name != PREFIX_CACHING:
            if reason := reason_for(couple[0]):
                table.add(tomlkit.comment(f"moved together: {reason}"))
            table.add("couple", tomlkit.item(couple))
        if variable.levels:
            table.add("levels", tomlkit.item(list(variable.levels)))
        several.append(table)
    return several


def _shown(value: Value) -> str:
    match value:
        case None:
            text = "absent"
        case True | False:
            text = "on" if value else "off"
        case tuple():
            text = " ".join(value)
        case _:
            text = str(value)
    # A comment is one line without control characters, and long values stand in the ends anyway.
    return shorten("".join(c if c.isprintable() else " " for c in text), _LONGEST_VALUE, placeholder=" …")
