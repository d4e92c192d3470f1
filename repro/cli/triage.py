"""`repro triage`: the first failing stage and the root line of a log, or the first failing rank of several, offline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repro.cli.options import json_option

if TYPE_CHECKING:
    from repro.triage import Diagnosis, PatternTable

_CHUNK = 1 << 18
_STDIN = Path("-")
_LOG = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
_OWN = click.Path(dir_okay=False, path_type=Path)


@click.command("triage")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=_LOG)
@click.option("--exit-code", type=int, help="The exit code of the server, where it is known (one LOG).")
@click.option("--patterns", "own", multiple=True, type=_OWN, help="A TOML file of your own rows; they go first.")
@json_option
def command(logs: tuple[Path, ...], exit_code: int | None, own: tuple[Path, ...], **options: Any) -> int:
    """Name the first failing stage of LOG (a file, or - for standard input).

    Several LOGs are those of one launch, one a node: the first failing rank is named.

    Exits with 0 for a healthy log, 1 for a failure, 10 for files that are no vLLM logs.
    """
    from repro.cli.output import print_json
    from repro.cli.triage_text import group_text, text
    from repro.errors import EXIT_FAILURE_SEEN, EXIT_GOOD, EXIT_INCONCLUSIVE, UsageError
    from repro.triage import ExitEvidence, first_failing, shipped_table, with_files

    if len(logs) > 1 and (exit_code is not None or len(set(logs)) < len(logs)):
        raise UsageError(
            "several logs need to be different files, and take no --exit-code",
            "Name each node's log once; --exit-code belongs to a single log.",
        )
    table = with_files(shipped_table(), own) if own else None
    exit_ = None if exit_code is None else ExitEvidence(exit_code)
    found = [(str(log), _read(log, table, exit_)) for log in logs]
    if len(found) == 1:
        name, diagnosis = found[0]
        document, talk = diagnosis.as_json(), text(diagnosis, name)
        failed, known = diagnosis.failure is not None and diagnosis.family is not None, diagnosis.is_vllm_log
    else:
        group = first_failing(found)
        document, talk = group.as_json(), group_text(group)
        failed, known = group.root is not None, any(one.is_vllm_log for _, one in found)
    if options["as_json"]:
        print_json("triage", document)
    else:
        click.echo(talk)
    if not known:
        return EXIT_INCONCLUSIVE
    return EXIT_FAILURE_SEEN if failed else EXIT_GOOD


def _read(log: Path, table: PatternTable | None, exit_: Any) -> Diagnosis:
    from repro.errors import InvalidFile
    from repro.triage import Triage

    reading = Triage(table)
    try:
        for chunk in _chunks(log):
            reading.feed(chunk)
    except OSError as error:
        raise InvalidFile(f"{log}: {error.strerror or error}", "name a log that can be read") from error
    reading.finish()
    return reading.diagnose(exit_)


def _chunks(log: Path) -> Iterator[bytes]:
    if log == _STDIN:
        while chunk := sys.stdin.buffer.read(_CHUNK):
            yield chunk
        return
    with log.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
