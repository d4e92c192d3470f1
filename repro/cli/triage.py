"""`repro triage`: the first failing stage and the root line of a log, offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from repro.cli.options import json_option

_CHUNK = 1 << 20


@click.command("triage")
@click.argument("log", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--exit-code", type=int, help="The exit code of the server, where it is known.")
@json_option
def command(log: Path, exit_code: int | None, **options: Any) -> int:
    """Name the first failing stage of LOG (a file, or - for standard input).

    Exits with 0 for a healthy log, 1 for a failure, 10 for a file that is no vLLM log.
    """
    from repro.cli.output import print_json
    from repro.errors import EXIT_FAILURE_SEEN, EXIT_GOOD, EXIT_INCONCLUSIVE, InvalidFile
    from repro.triage import Diagnosis, ExitEvidence, Triage

    reading = Triage()
    try:
        if str(log) == "-":
            while chunk := sys.stdin.buffer.read(_CHUNK):
                reading.feed(chunk)
        else:
            with log.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    reading.feed(chunk)
    except OSError as error:
        raise InvalidFile(f"{log}: {error.strerror or error}", "name a log that can be read") from error
    reading.finish()
    diagnosis: Diagnosis = reading.diagnose(None if exit_code is None else ExitEvidence(exit_code))
    if options["as_json"]:
        print_json("triage", diagnosis.as_json())
    else:
        click.echo(_text(diagnosis, str(log)))
    if not diagnosis.is_vllm_log:
        return EXIT_INCONCLUSIVE
    return EXIT_GOOD if diagnosis.failure is None else EXIT_FAILURE_SEEN


def _text(diagnosis: Any, name: str) -> str:
    if not diagnosis.is_vllm_log:
        return f"{name}: not a log of vLLM, nor of what starts it. {diagnosis.note}".rstrip()
    version = f" (vLLM {diagnosis.vllm_version})" if diagnosis.vllm_version else ""
    lines = []
    if diagnosis.failure is None:
        lines.append(f"no failure{version}")
    else:
        lines.append(f"{diagnosis.stage}/{diagnosis.family}{version}, confidence {diagnosis.confidence:.0%}")
        where = f" [{diagnosis.process}]" if diagnosis.process else ""
        if diagnosis.root_line_no is not None:
            lines.append(f"root:     line {diagnosis.root_line_no}{where}: {(diagnosis.root_line or '').strip()}")
        if diagnosis.consequences:
            shown = ", ".join(map(str, diagnosis.consequences[:10]))
            more = " …" if len(diagnosis.consequences) > 10 else ""
            lines.append(f"follows:  lines {shown}{more} only follow from it")
    for reached in diagnosis.reached:
        lines.append(f"done:     {reached.stage} (line {reached.line_no})")
    if diagnosis.expected_next is not None and diagnosis.failure is not None:
        lines.append(f"expected: {diagnosis.expected_next} next")
    if diagnosis.note:
        lines.append(f"note:     {diagnosis.note}")
    return "\n".join(lines)
