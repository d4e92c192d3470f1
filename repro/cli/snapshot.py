"""`repro snapshot`: freezes host, GPUs, container, process, command, log and source state right after a failure."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from repro.cli.options import FILE, json_option, source_options

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command("snapshot")
@source_options
@click.option("--request", type=FILE, help="The request that failed: the JSON body of a completion.")
@click.option("--concurrency", type=click.IntRange(min=1), help="How many requests were sent at once.")
@click.option(
    "--source", "sources", type=FOLDER, multiple=True, help="A git checkout whose state belongs to the scene."
)
@click.option("--change", metavar="TEXT", help="What you changed last.")
@click.option(
    "--inside/--no-inside",
    default=None,
    help="Ask the Python of an ended container's image as well (in a throw-away container), or none at all.",
)
@click.option("--metrics", metavar="URL", help="A Prometheus server that has scraped this vLLM.")
@click.option("--since", metavar="TIME", default="1h", show_default=True, help="How far back its series go: 30m, 2h.")
@click.option("--hash-weights", is_flag=True, help="Read and hash all weights; takes as long as loading them.")
@json_option
def command(**options: Any) -> int:
    """Freeze the scene; nothing on the machine is changed.

    With --container or --pid that server is taken, with --log its log as well; a command may stand after `--`. Without
    any of them the vLLM that runs here, or has just ended, is looked for. Secrets are masked before anything is
    written.
    """
    from repro.cli.masks import redactor_for
    from repro.cli.output import print_json, talk
    from repro.cli.snapshot_check import check_snapshot
    from repro.cli.snapshot_subject import chooser, find_subject
    from repro.cli.snapshot_take import asking_of, take_snapshot
    from repro.machine.clock import SystemClock
    from repro.machine.docker_api import connect
    from repro.session.workspace import Workspace

    clock = SystemClock()
    asking = asking_of(options)
    by_command = bool(options["words"] or options["file"])
    subject = find_subject(
        options["pid"],
        options["container"],
        options["log"],
        search=not (by_command or options["log"]),
        connect=connect,
        choose=chooser(sys.stdin.isatty() and sys.stderr.isatty()),
        clock=clock,
    )
    if by_command:
        subject = replace(subject, said=f"a command on {subject.said}")
    talk(f"snapshot of {subject.said}")
    folder = Workspace.open(Path.cwd()).new("snapshots", clock.now())
    folder.chmod(0o700)  # what a production server was told is nobody else's business
    taken = take_snapshot(folder, subject, asking, redactor_for(), clock, check_snapshot)
    if options["as_json"]:
        print_json("snapshot", taken.document())
    else:
        click.echo(taken.text())
    return 0
