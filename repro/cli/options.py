"""Options that several commands share: where the production command comes from, what is asked of the server, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

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
    """How long a server may take, in seconds."""

    start: float
    stall: float


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
                "--recipe", metavar="NAME", help="What the model needs; chosen by the model's name if absent."
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
                "--stall", type=float, default=600.0, show_default=True, help="Seconds without log and CPU: a hang."
            ),
        )
    ):
        command = option(command)
    return command


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
