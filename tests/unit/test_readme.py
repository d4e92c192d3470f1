"""The README is tested: its commands exist, its options are understood, its exit codes are the program's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from repro import errors
from repro.cli.lazy import COMMANDS
from repro.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```\n(.*?)```", README, re.DOTALL)
LINES = [line.split("#")[0].strip() for block in BLOCKS for line in block.splitlines()]


def test_the_table_of_commands_is_the_program() -> None:
    named = re.findall(r"^\| `repro (\w+)", README, re.MULTILINE)
    assert sorted(named) == sorted(COMMANDS)


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("repro ")])
def test_every_command_line_is_understood(line: str) -> None:
    """Parsed by the command itself; nothing is run."""
    _, name, *words = shlex.split(line.replace("...", ""))
    context = click.Context(cli)
    command = cli.get_command(context, name)
    assert command is not None
    command.make_context(name, words, parent=context)


def test_the_table_of_exit_codes_is_the_program() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    constants = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert told == constants


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`?make ([a-z-]+)", README)) - {"it"}
    assert named
    assert named <= targets
