"""Makes sure that a scene can be written down: what a search begins with must be what its files say.

A secret in a command cannot be masked (the server needs it) and must not be written, so such a command is refused, with
the way to pass it by name. A secret in a request is masked before anything is sent: the masked text is then what the
search sends, the journal keeps and a resume sends again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from repro.domain.command import Command
from repro.domain.request import Request
from repro.domain.scene import Scene, canonical_json
from repro.errors import UsageError
from repro.redact.environment_names import is_secret_name
from repro.redact.redactor import Redactor


def writable(scene: Scene, redactor: Redactor) -> tuple[Scene, tuple[str, ...]]:
    """The scene with a masked request, and notes on what was masked. Raises UsageError for a secret in a command."""
    for command in (scene.minimal, scene.production):
        _refuse_flags(command, redactor)
        _refuse_environment(command.environment, redactor)
    _refuse_environment(scene.environment, redactor)
    request, tools = scene.request, scene.tools_json
    masked_request = None if request is None else Request.of(request.path, redactor.json(request.body))
    masked_tools = None if tools is None else canonical_json(redactor.json(json.loads(tools)))
    if masked_request == request and masked_tools == tools:
        return scene, ()
    note = "something in the request looks like a secret: it is masked, and the masked text is what is sent"
    return replace(scene, request=masked_request, tools_json=masked_tools), (note,)


def _refuse_flags(command: Command, redactor: Redactor) -> None:
    for flag in command.flags:
        tokens = flag.argv()
        if tuple(redactor.argv(tokens)) != tuple(tokens):
            raise UsageError(
                f"{flag.written} holds a secret, which would have to be written into the session",
                "take it out of the command: vLLM and its connectors read credentials from environment variables or "
                "files, and a variable is passed on by name (env_from)",
            )
    if command.model is not None and redactor.text(command.model) != command.model:
        raise UsageError("the model's name holds a secret", "name the model by a path or a name without credentials")


def _refuse_environment(pairs: Iterable[tuple[str, str]], redactor: Redactor) -> None:
    for name, value in pairs:
        if is_secret_name(name) or redactor.text(f"{name}={value}") != f"{name}={value}":
            raise UsageError(
                f"{name} holds a secret, which would have to be written into the session",
                f"export {name} and leave it out of the command: list it in env_from, and it is passed on by name",
            )
