"""A command group whose commands are imported only when they are run, so that `repro --help` is instant."""

from __future__ import annotations

from importlib import import_module

import click

# name: (module, one line for `repro --help`), in the order in which they are used.
COMMANDS: dict[str, tuple[str, str]] = {
    "snapshot": ("repro.cli.snapshot", "Freeze the scene right after a failure."),
    "check": ("repro.cli.check", "Say whether the environment can work at all, and name the first broken link."),
    "diff": ("repro.cli.diff", "Say what differs between two snapshots, most telling first."),
    "triage": ("repro.cli.triage", "Name the first failing stage and the root line of a log."),
    "init": ("repro.cli.init", "Write a scenario from a production command."),
    "run": ("repro.cli.run", "Start vLLM once; name the first failing stage, or say it is ready and answers."),
    "bisect": ("repro.cli.bisect", "Find the smallest failing setting, one variable at a time."),
    "bundle": ("repro.cli.bundle", "Pack a finished search for whoever mends it."),
    "clean": ("repro.cli.clean", "Stop servers that a killed repro left behind."),
    "schema": ("repro.cli.schema", "Print the JSON Schema of a file that you write."),
    "demo": ("repro.cli.demo", "Search a Kimi-K3-like failure on the built-in simulator."),
}


class LazyGroup(click.Group):
    """Lists COMMANDS without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's own signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = import_module(COMMANDS[cmd_name][0]).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{COMMANDS[cmd_name][0]}.command is no click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])
