"""`repro check`: whether the environment can work at all, link by link, before anyone searches for a variable."""

from __future__ import annotations

from typing import Any

import click

from repro.cli.options import json_option


class WordsAfterDashes(click.Command):
    """Keeps the words after `--` apart from the arguments before it; click would put both into one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["repro.words"] = tuple(args[at + 1 :])
        return super().parse_args(ctx, args[:at])


@click.command("check", cls=WordsAfterDashes, options_metavar="[OPTIONS]")
@click.argument("snapshots", nargs=-1, metavar="[SNAPSHOT ...] [-- [NAME=value ...] vllm serve ...]")
@click.option("--recipe", metavar="NAME", help="What to check against; chosen by model and GPUs if absent.")
@click.option(
    "--self-built",
    metavar="commit=…,lock=…,recipe=…,rollback=…",
    help="Declare the image as your own build, and what it was built from.",
)
@click.option(
    "--gpus",
    metavar="COUNTxNAME[:GB]",
    help="Declare a node's GPUs, for nodes whose driver does not tell (ROCm): 8xMI355X:288, GB for each.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, /, snapshots: tuple[str, ...], **options: Any) -> int:
    """Check the compatibility chain, from the driver to the parsers, against a recipe.

    SNAPSHOT is an id, a folder or a fingerprint.json; the newest one if none is named; one for each node of a server
    on several nodes. With a command after `--` the facts are those of this host now. Exits with 0 when every link
    holds, 4 when the environment must be rebuilt, 10 when too little is known.
    """
    from repro.cli.check_run import Asked, run_check

    asked = Asked(snapshots, ctx.meta["repro.words"], options["recipe"], options["self_built"], options["gpus"])
    return run_check(asked, as_json=options["as_json"])
