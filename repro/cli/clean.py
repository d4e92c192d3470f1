"""`repro clean`: stops what a killed repro left running, and nothing else."""

from __future__ import annotations

import click

from repro.cli.options import json_option


@click.command("clean")
@click.option("--dry-run", is_flag=True, help="Only list what would be stopped and removed.")
@json_option
def command(dry_run: bool, as_json: bool) -> int:
    """Stop servers that a killed repro of this workspace left behind, processes and containers.

    Says what is there first. Every command that starts servers does this too. Servers of a repro that still runs are
    left alone.
    """
    from contextlib import suppress
    from dataclasses import asdict
    from pathlib import Path

    from repro.cli.left_behind import mask_left_logs, orphan_line, swept_lines
    from repro.cli.output import print_json, talk
    from repro.errors import EXIT_COULD_NOT_TEST, EXIT_GOOD, WorkspaceBusy
    from repro.machine.clock import SystemClock
    from repro.runner.sweep import orphans, sweep
    from repro.session.workspace import Workspace

    workspace = Workspace.open(Path.cwd())
    found = orphans(workspace.servers)
    if dry_run:
        if as_json:
            print_json("clean", {"found": [asdict(orphan) for orphan in found], "servers": []})
        else:
            click.echo("\n".join(map(orphan_line, found)) or f"nothing was left behind in {workspace.root}")
        return EXIT_GOOD
    for orphan in found:
        talk(orphan_line(orphan))
    swept = sweep(workspace.servers, SystemClock())
    with suppress(WorkspaceBusy), workspace.locked("clean"):  # whoever holds it has masked them already
        mask_left_logs(workspace)
    if as_json:
        servers = [
            {"id": s.id, "ended": s.ended, "left": s.left, "containers": s.containers, "gone": s.gone} for s in swept
        ]
        print_json("clean", {"found": [asdict(orphan) for orphan in found], "servers": servers})
    else:
        lines = [line for server in swept for line in swept_lines(server)]
        click.echo("\n".join(lines) or f"nothing was left behind in {workspace.root}")
    return EXIT_GOOD if all(s.gone for s in swept) else EXIT_COULD_NOT_TEST
