"""`repro schema`: the JSON Schemas of the files that users write."""

from __future__ import annotations

import json

import click


@click.command("schema")
@click.argument("kind", metavar="scenario|recipe")
def command(kind: str) -> int:
    """Print the JSON Schema of a scenario or a recipe, for editors and checks."""
    from repro.recipe.schema import json_schema

    click.echo(json.dumps(json_schema(kind), indent=2, ensure_ascii=False))
    return 0
