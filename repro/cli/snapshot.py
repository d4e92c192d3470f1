"""`repro snapshot`: freezes host, process, command, log and source state right after a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from repro.cli.options import FILE, json_option, source_options


@click.command("snapshot")
@source_options
@click.option("--source", "sources", type=FILE, multiple=True, help="A git checkout whose state belongs to the scene.")
@click.option("--change", metavar="TEXT", help="What you changed last.")
@json_option
def command(**options: Any) -> int:
    """Freeze the scene; nothing on the machine is changed.

    With --pid the running server is taken, with --log its log as well; a command may stand after `--`. Without any of
    them a running vLLM server is looked for. Secrets are masked before anything is written.
    """
    from repro.cli.output import print_json
    from repro.cli.snapshot_take import take_snapshot
    from repro.cli.wiring import redactor_for
    from repro.machine.clock import SystemClock
    from repro.session.workspace import Workspace

    workspace = Workspace.open(Path.cwd())
    taken = take_snapshot(
        workspace.root / "snapshots",
        SystemClock(),
        redactor_for(),
        words=options["words"],
        file=options["file"],
        pid=options["pid"],
        container=options["container"],
        log=options["log"],
        sources=tuple(options["sources"]),
        change=options["change"],
    )
    if options["as_json"]:
        print_json("snapshot", taken.document())
    else:
        click.echo(taken.text())
    return 0
