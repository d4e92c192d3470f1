"""What differs between two commands, flag by flag: by what vLLM would make of them, not by how they are written.

`-tp 8` equals `--tensor-parallel-size=8`, "32k" equals 32000, and JSON is compared as JSON, dotted or in one piece.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from repro.domain.command.command import Command
from repro.domain.command.flag import FlagValue
from repro.domain.command.flag_names import read_name
from repro.domain.command.flag_spec import FlagKind
from repro.domain.command.whole_numbers import as_int


@dataclass(frozen=True)
class Difference:
    """One thing that differs. `name` is "program", "model", a canonical flag, "env:NAME" ("$NAME" stands for a
    value that is passed through), "launcher", "image" or "docker:--option". A side without it is None.
    """

    name: str
    left: FlagValue
    right: FlagValue


def difference(a: Command, b: Command) -> tuple[Difference, ...]:
    """Everything that differs: program and model, then flags in written order, then environment, then what stands
    around.
    """
    return tuple(d for d in (*_heads(a, b), *_flags(a, b), *_environment(a, b), *_around(a, b)) if d.left != d.right)


def _heads(a: Command, b: Command) -> Iterator[Difference]:
    yield Difference("program", " ".join(a.program), " ".join(b.program))
    yield Difference("model", a.model, b.model)


def _flags(a: Command, b: Command) -> Iterator[Difference]:
    for name in _names(a, b):
        left, right = a.flag(name), b.flag(name)
        if not _same(name, left, right):
            yield Difference(name, left, right)


def _names(a: Command, b: Command) -> Iterator[str]:
    """Every flag once. A dotted part stands for itself unless one of the two writes the whole object in one piece."""
    whole = {f.name for c in (a, b) for f in c.flags if "." not in f.name}
    seen = {"--model"}
    for flag in (*a.flags, *b.flags):
        base = flag.name.partition(".")[0]
        name = base if base in whole else flag.name
        if name not in seen:
            seen.add(name)
            yield name


def _same(name: str, left: FlagValue, right: FlagValue) -> bool:
    if left == right:
        return True
    if not isinstance(left, str) or not isinstance(right, str):
        return False
    spec = read_name(name).spec
    if spec is None:
        return False
    if "." in name or spec.kind is FlagKind.JSON:
        return _json(left) == _json(right)
    number = as_int(left) if spec.ordinal else None
    return number is not None and number == as_int(right)


def _json(text: str) -> object:
    """A value that compares as JSON does: true is not 1, and key order does not count."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def _environment(a: Command, b: Command) -> Iterator[Difference]:
    return _pairs("env:", _variables(a), _variables(b))


def _variables(command: Command) -> dict[str, FlagValue]:
    return {**{name: f"${name}" for name in command.environment_from}, **dict(command.environment)}


def _around(a: Command, b: Command) -> Iterator[Difference]:
    yield Difference(
        "launcher", " ".join((*a.prelude, *a.launcher)) or None, " ".join((*b.prelude, *b.launcher)) or None
    )
    left = a.container.image if a.container else None
    right = b.container.image if b.container else None
    yield Difference("image", left, right)
    yield from _pairs("docker:", _options(a), _options(b))


def _options(command: Command) -> dict[str, FlagValue]:
    if command.container is None:
        return {}
    names: Iterable[str] = dict.fromkeys(f.name for f in command.container.options if f.name != "--env")
    return {name: command.container.every(name) for name in names}


def _pairs(prefix: str, left: dict[str, FlagValue], right: dict[str, FlagValue]) -> Iterator[Difference]:
    for name in dict.fromkeys((*left, *right)):
        yield Difference(prefix + name, left.get(name), right.get(name))
