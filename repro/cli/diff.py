"""`repro diff`: what differs between two frozen scenes, and what may be concluded from it."""

from __future__ import annotations

from typing import Any

import click

from repro.cli.options import json_option


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("now", metavar="B")
@json_option
def command(before: str, now: str, **options: Any) -> int:
    """Compare snapshot A with B, most telling difference first.

    A snapshot is an id, a folder or a fingerprint.json; ID/NODE is one node's part of it; B may be `now`, this host as
    it is. What both sides know and what only one side knows are told apart. Exits with 0 whatever differs.
    """
    from repro.cli.diff_run import run_diff

    return run_diff(before, now, as_json=options["as_json"])
