"""`repro schema`: the JSON Schemas of the files that users write, and of those that a snapshot writes."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.argument("kind", metavar="scenario|recipe|fingerprint|snapshot")
def command(kind: str) -> int:
    """Print the JSON Schema of a scenario, a recipe, or a snapshot's fingerprint.json or snapshot.json."""
    from repro.errors import UsageError
    from repro.recipe.schema import SCHEMAS, json_schema
    from repro.snapshot.schema import SNAPSHOT_SCHEMAS, snapshot_schema

    if kind not in (*SCHEMAS, *SNAPSHOT_SCHEMAS):
        known = ", ".join(sorted((*SCHEMAS, *SNAPSHOT_SCHEMAS)))
        raise UsageError(f"there is no schema called {kind!r}", f"There are: {known}.")
    document = snapshot_schema(kind) if kind in SNAPSHOT_SCHEMAS else json_schema(kind)
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    return 0
