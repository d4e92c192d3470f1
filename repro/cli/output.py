"""Results to stdout as one JSON document with schema and version, talk to stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

VERSION = 1


def print_json(schema: str, document: Mapping[str, Any]) -> None:
    """One document, as every `--json` gives it."""
    whole = {"schema": f"repro/{schema}", "version": VERSION, **document}
    click.echo(json.dumps(whole, ensure_ascii=False, indent=2))


def talk(text: str) -> None:
    """One message to the person in front of the terminal."""
    click.echo(text, err=True)


def seconds(value: float) -> str:
    """A duration for people: 0.4 s, 17 s, 3 min 20 s, 2 h 05 min."""
    if value < 10:
        return f"{value:.1f} s"
    if value < 60:
        return f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
