"""`repro clean`: stops what a killed repro left running, and nothing else."""

from __future__ import annotations

import click

from repro.cli.options import json_option


@click.command("clean")
@json_option
def command(as_json: bool) -> int:
    """Stop servers that a killed repro of this workspace left behind.

    Every command that starts servers does this first. Servers of a repro that still runs are left alone.
    """
    from contextlib import suppress
    from pathlib import Path

    from repro.cli.left_behind import mask_left_logs, swept_lines
    from repro.cli.output import print_json
    from repro.errors import EXIT_COULD_NOT_TEST, EXIT_GOOD, WorkspaceBusy
    from repro.machine.clock import SystemClock
    from repro.runner.sweep import sweep
    from repro.session.workspace import Workspace

    workspace = Workspace.open(Path.cwd())
    swept = sweep(workspace.servers, SystemClock())
    with suppress(WorkspaceBusy), workspace.locked("clean"):  # whoever holds it has masked them already
        mask_left_logs(workspace)
    if as_json:
        servers = [
            {"id": s.id, "ended": s.ended, "left": s.left, "containers": s.containers, "gone": s.gone} for s in swept
        ]
        print_json("clean", {"servers": servers})
    else:
        lines = [line for server in swept for line in swept_lines(server)]
        click.echo("\n".join(lines) or f"nothing was left behind in {workspace.root}")
    return EXIT_GOOD if all(s.gone for s in swept) else EXIT_COULD_NOT_TEST
