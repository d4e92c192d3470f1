"""The command as understood, and what the caller declares about the launch: recipe, image, what was changed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from repro.domain.command import Difference, FlagValue, difference
from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context

_BY = "given by the caller"


class CommandCollector:
    """Nothing is measured here; the labels say `declared`."""

    name = "command"
    deadline = 5.0
    fields = ("argv", "shell", "environment", "difference", "recipe_hash", "image_id", "change", "changed_at")

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`difference`: [{name, minimal, command}], `name` a canonical flag, `env:NAME`, `model`, …"""
        redactor = context.redactor
        return {
            **self._understood(context),
            "recipe_hash": _declared(context.recipe_hash, "no recipe was given"),
            "image_id": _declared(context.image_id, "not started from an image"),
            "change": _declared(context.change and redactor.text(context.change), "nothing was declared as changed"),
            "changed_at": Fact.declared(context.changed_at, "when it was declared, Unix seconds")
            if context.change and context.changed_at is not None
            else Fact.unavailable("nothing was declared as changed"),
        }

    def _understood(self, context: Context) -> Mapping[str, Fact]:
        command, minimal, redactor = context.command, context.minimal, context.redactor
        if command is None:
            names = ("argv", "shell", "environment", "difference")
            return dict.fromkeys(names, Fact.unavailable("no command was given"))
        argv = redactor.argv(command.argv())
        pairs = redactor.argv([f"{name}={value}" for name, value in command.environment])
        return {
            "argv": Fact.declared(list(argv), _BY),
            # Built from what is masked already: quoting for a shell could break a secret into unrecognisable pieces.
            "shell": Fact.declared(shlex.join((*(p for p in pairs if p not in argv), *argv)), _BY),
            "environment": Fact.declared(redactor.environment(context.server_environment()), _BY),
            "difference": Fact.unavailable("no minimal command was given")
            if minimal is None
            else Fact.declared([_shown(d, redactor) for d in difference(minimal, command)], _BY),
        }


def _shown(found: Difference, redactor: Redactor) -> dict[str, Any]:
    return {
        "name": found.name,
        "minimal": _masked(found.name, found.left, redactor),
        "command": _masked(found.name, found.right, redactor),
    }


def _masked(name: str, value: FlagValue, redactor: Redactor) -> Any:
    """A flag's or variable's value, masked as it would be in the argument list."""
    if value is None or isinstance(value, bool):
        return value
    words = (value,) if isinstance(value, str) else value
    if name.startswith("env:"):
        return redactor.argv([f"{name[4:]}={words[0]}"])[0].partition("=")[2]
    masked = list(redactor.argv([name, *words])[1:])
    return masked[0] if isinstance(value, str) else masked


def _declared(value: str | None, otherwise: str) -> Fact:
    return Fact.declared(value, _BY) if value else Fact.unavailable(otherwise)
