"""Options that several commands share: where the production command comes from, what is asked of the server, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from repro.domain.stage import Stage

F = TypeVar("F", bound=Callable[..., Any])

_STALL_S = 600.0
FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Source:
    """Where the production command comes from; exactly one of these is given."""

    words: tuple[str, ...] = ()
    file: Path | None = None
    pid: int | None = None
    container: str | None = None
    log: Path | None = None


@dataclass(frozen=True)
class Wanted:
    """What production asks of its server, as given on the command line."""

    input_tokens: int | None = None
    max_tokens: int | None = None
    concurrency: int = 1
    stream: bool = False
    request: Path | None = None
    tools: Path | None = None
    recipe: str | None = None


@dataclass(frozen=True)
class Waits:
    """How long a server may take, in seconds; `stages` are stages with a stall deadline of their own."""

    start: float
    stall: float
    stages: tuple[tuple[Stage, float], ...] = ()


@dataclass(frozen=True)
class Where:
    """Where servers run. `engine` is None for the one that suits the command; `endpoint` is somebody else's server."""

    engine: str | None = None
    endpoint: str | None = None
    nodes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {"engine": self.engine, "endpoint": self.endpoint, "nodes": list(self.nodes)}

    @staticmethod
    def from_json(value: dict[str, Any]) -> Where:
        return Where(value["engine"], value["endpoint"], tuple(value["nodes"]))


HERE = Where()


def source_options(command: F) -> F:
    """--file, --pid, --container, --log and the words after `--`."""
    for option in reversed(
        (
            click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- [NAME=value ...] vllm serve ...]"),
            click.option("--file", "file", type=FILE, help="A file that holds the command (a shell script will do)."),
            click.option("--pid", type=int, help="Take command and environment from this running process."),
            click.option("--container", metavar="NAME", help="Take them from this Docker container, running or not."),
            click.option("--log", "log", type=FILE, help='Take the command from the "non-default args" of this log.'),
        )
    ):
        command = option(command)
    return command


def request_options(command: F) -> F:
    """The request values of production, and the recipe."""
    whole = click.IntRange(min=1)
    for option in reversed(
        (
            click.option("--input-tokens", type=whole, help="Length of production's prompts, as the server counts it."),
            click.option("--max-tokens", type=whole, help="Production's output limit."),
            click.option("--concurrency", type=whole, default=1, show_default=True, help="Requests at once."),
            click.option("--stream", is_flag=True, help="Production streams its answers."),
            click.option("--request", type=FILE, help="Production's own request: the JSON body of a chat completion."),
            click.option("--tools", type=FILE, help="Tool definitions to send: a JSON array."),
            click.option(
                "--recipe",
                metavar="NAME",
                help="What the model needs; chosen by the model's name and this machine's GPUs if absent.",
            ),
        )
    ):
        command = option(command)
    return command


def wait_options(command: F) -> F:
    """--start-timeout and --stall."""
    for option in reversed(
        (
            click.option(
                "--start-timeout", type=float, default=3600.0, show_default=True, help="Seconds until ready, at most."
            ),
            click.option(
                "--stall",
                multiple=True,
                metavar="[STAGE=]SECONDS",
                help="Seconds without log, CPU, disk or network: a hang; STAGE=SECONDS for one stage.  [default: 600]",
            ),
        )
    ):
        command = option(command)
    return command


def waits_of(options: dict[str, Any]) -> Waits:
    """What --start-timeout and --stall say."""
    stalls = dict(_stall(text) for text in options["stall"])
    everywhere = stalls.pop(None, _STALL_S)
    stages = tuple((stage, seconds) for stage, seconds in stalls.items() if stage is not None)
    return Waits(options["start_timeout"], everywhere, stages)


def _stall(text: str) -> tuple[Stage | None, float]:
    """`SECONDS`, or `STAGE=SECONDS` for one stage."""
    stage, _, number = text.rpartition("=")
    try:
        found = (Stage(stage) if stage else None, float(number))
    except ValueError:
        found = (None, 0.0)
    if found[1] <= 0:
        raise click.BadParameter(
            f"{text!r} is neither SECONDS nor STAGE=SECONDS, such as comm_group=120", param_hint="--stall"
        )
    return found


def place_options(command: F) -> F:
    """--engine, --endpoint and --node."""
    for option in reversed(
        (
            click.option(
                "--engine",
                type=click.Choice(["process", "docker"]),
                help="What servers are started as; by itself, a `docker run …` starts containers.",
            ),
            click.option("--endpoint", metavar="URL", help="Try requests on this running server; it is left alone."),
            click.option(
                "--node",
                "nodes",
                multiple=True,
                metavar="netns:NAME|docker:NETWORK[@IP]",
                help="One launch over several nodes of this host, once for each.",
            ),
        )
    ):
        command = option(command)
    return command


def where_of(options: dict[str, Any]) -> Where:
    """What --engine, --endpoint and --node say."""
    if options["endpoint"] and (options["nodes"] or options["engine"]):
        raise click.UsageError("--endpoint is a running server; --engine and --node start new ones")
    return Where(options["engine"], options["endpoint"], options["nodes"])


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
