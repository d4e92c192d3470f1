"""What a collector is, what it is told, and how one unreadable fact costs only itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from repro.domain.command import Command
from repro.domain.fingerprint import Fact
from repro.errors import ReproError
from repro.machine.containers import argv_of, environment_of, sees_our_files
from repro.machine.docker_port import Docker, NoSuchObject
from repro.machine.processes import describe
from repro.redact.redactor import Redactor
from repro.snapshot.log_source import LogSource


class Fetch(Protocol):
    """One HTTP GET for collectors, since the client belongs to another room."""

    def __call__(self, url: str, deadline_s: float) -> str:
        """The body of an answer 200. LookupError with a sentence for the reader otherwise."""
        ...


@dataclass(frozen=True)
class Series:
    """A Prometheus server and how long before now its series begins, in seconds."""

    url: str
    since_s: float


@dataclass(frozen=True)
class Context:
    """Everything that the collectors of one capture are told.

    `environment` is the one that the command would be started in. `minimal` is the command to compare `command` with.
    `folder` exists already and takes the log's copy. `model` and `model_revision` count above what the command says.
    `root` is where the system's files (`/proc`, `/etc`, `/sys`) are read from. `container` is what `docker inspect`
    shows of the container that was named, `container_hint` why there is none, `log_hint` where more of the log may be.
    `request` is the body of a request that failed, `concurrency` how many were sent at once; `count_tokens` asks a
    server that still answers, and raises LookupError where none does.
    """

    redactor: Redactor
    folder: Path | None = None
    pid: int | None = None
    command: Command | None = None
    minimal: Command | None = None
    log: LogSource | None = None
    log_hint: str = ""
    sources: tuple[Path, ...] = ()
    model: str | None = None
    model_revision: str | None = None
    hash_weights: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    recipe_hash: str | None = None
    image_id: str | None = None
    change: str | None = None
    changed_at: float | None = None
    docker: Docker | None = None
    container: Mapping[str, Any] | None = None
    container_hint: str = "no container was named"
    inside: bool = False
    fetch: Fetch | None = None
    series: Series | None = None
    request: Mapping[str, Any] | None = None
    count_tokens: Callable[[Mapping[str, Any]], int] | None = None
    concurrency: int | None = None
    root: Path = Path("/")

    def elsewhere(self) -> str:
        """Why the server's paths mean nothing on this host; empty where they do."""
        if self.container is not None:
            return "the server's files are inside its container"
        if self.pid is not None and not sees_our_files(self.pid):
            return "the process sees other files than this host (a container); name it with --container"
        return ""

    def server_argv(self) -> tuple[str, ...]:
        """The server's own argument list: as the process table or the container shows it, else as the command says."""
        if self.pid is not None and (argv := describe(self.pid).argv):
            return argv
        if self.container is not None:
            return argv_of(self.container)
        if self.command is None:
            return ()
        if self.command.container is not None:
            return tuple(self.command.argv())
        return (*self.command.program, *self.command.arguments())

    def server_environment(self) -> Mapping[str, str]:
        """The environment of the process or the container, else the one that the command would be started in."""
        if self.pid is not None and (environment := describe(self.pid).environment):
            return environment
        if self.container is not None:
            return environment_of(self.container)
        if self.pid is not None:
            return {}
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
            return f"permission denied: {error.filename or error}; needs its owner or root"
        case ReproError():
            return f"{error.message} {error.hint}".strip()
        case FileNotFoundError():
            return f"not there: {error.filename or error}"
        # Raised by collectors and the Docker client with a sentence for the reader.
        case LookupError() if type(error) in (LookupError, NoSuchObject):
            return str(error)
        case _:
            text = str(error).strip().split("\n")[0]
            return f"{type(error).__name__}: {text}" if text else type(error).__name__
