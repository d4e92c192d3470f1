"""What a collector is, what it is told, and how one unreadable fact costs only itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from repro.domain.command import Command
from repro.domain.fingerprint import Fact
from repro.machine.processes import describe
from repro.redact.redactor import Redactor


@dataclass(frozen=True)
class Context:
    """Everything that the collectors of one capture are told.

    `environment` is the one that the command would be started in. `minimal` is the command to compare `command` with.
    `folder` exists already and takes the log's copy. `model` and `model_revision` count above what the command says.
    `root` is where the system's files (`/proc`, `/etc`, `/sys`) are read from.
    """

    redactor: Redactor
    folder: Path | None = None
    pid: int | None = None
    command: Command | None = None
    minimal: Command | None = None
    log: Path | None = None
    sources: tuple[Path, ...] = ()
    model: str | None = None
    model_revision: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    recipe_hash: str | None = None
    image_id: str | None = None
    change: str | None = None
    root: Path = Path("/")

    def server_argv(self) -> tuple[str, ...]:
        """The server's own argument list: as the process table shows it, else as the command says, else nothing."""
        if self.pid is not None:
            return describe(self.pid).argv or ()
        if self.command is None:
            return ()
        if self.command.container is not None:
            return tuple(self.command.argv())
        return (*self.command.program, *self.command.arguments())

    def server_environment(self) -> Mapping[str, str]:
        """The environment of the process, else the one that the command would be started in, its own pairs included."""
        if self.pid is not None:
            return describe(self.pid).environment or {}
        return {**self.environment, **dict(self.command.environment if self.command is not None else ())}


class Collector(Protocol):
    """One group of facts. `collect` may raise or hang: `fields` are then unavailable after `deadline` seconds."""

    @property
    def name(self) -> str: ...

    @property
    def fields(self) -> tuple[str, ...]: ...

    @property
    def deadline(self) -> float: ...

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """Facts by short name, free of secrets."""


def attempt(read: Callable[[], Any], how: str = "") -> Fact:
    """The value that `read` returns as a measured fact, or the reason why there is none."""
    try:
        return Fact.measured(read(), how)
    except Exception as error:  # a snapshot is taken where things are broken: nothing may cost more than its own field
        return Fact.unavailable(reason_of(error))


def reason_of(error: BaseException) -> str:
    """An error as one line for the reader."""
    match error:
        case PermissionError():
            return f"permission denied: {error.filename or error}"
        case FileNotFoundError():
            return f"not there: {error.filename or error}"
        case LookupError() if type(error) is LookupError:  # raised by the collectors with a sentence for the reader
            return str(error)
        case _:
            text = str(error).strip().split("\n")[0]
            return f"{type(error).__name__}: {text}" if text else type(error).__name__
