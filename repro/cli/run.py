"""`repro run`: one launch, the first failing stage or ready, the request set, and the stop."""

from __future__ import annotations

from typing import Any

import click

from repro.cli.options import (
    FILE,
    json_option,
    place_options,
    request_options,
    source_options,
    wait_options,
    waits_of,
    where_of,
)

_NOT_WITH_LADDER = ("repeat", "endpoint", "diagnose", "stop_after", "target")


@click.command("run")
@click.option("--scenario", type=FILE, help="A scenario file from `repro init`.")
@source_options
@request_options
@wait_options
@place_options
@click.option("--minimal", is_flag=True, help="Start the minimal command of the recipe instead of production's.")
@click.option("--stop-after", metavar="STAGE", help="Stop, passed, as soon as this start-up stage is proven done.")
@click.option("--target", metavar="STAGE/FAMILY", help="Exit with 1 for this failure alone and with 125 for another.")
@click.option("--git-bisect", is_flag=True, help="For `git bisect run`: wrong usage is 128 instead of 2.")
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    metavar="N",
    help="Launch N times: how often which stage fails, and whether it is the same.",
)
@click.option(
    "--diagnose",
    is_flag=True,
    help="One re-run with the diagnostic settings (NCCL_DEBUG, log level, ...), compared with the failure before.",
)
@click.option(
    "--rank-ladder",
    is_flag=True,
    help="Where the ranks do not meet: sockets, all-reduce, dummy weights, weights, graphs, to the first that fails.",
)
@json_option
def command(**options: Any) -> int:
    """Start the server, watch it, send the request set, stop it.

    Exits with 0 when it became ready and answered as expected, 1 when it failed, 125 when it could not be tested.
    """
    from repro.cli.bisect import scenario_or_source, wanted_of
    from repro.cli.run_once import run_once

    if options["diagnose"] and (options["repeat"] or options["endpoint"]):
        raise click.UsageError("--diagnose is one launch of its own; --repeat and --endpoint do not go with it")
    scenario, source = scenario_or_source(options)
    if options["rank_ladder"]:
        from repro.cli.rank_ladder import run_ladder

        beside = [name for name in _NOT_WITH_LADDER if options[name]]
        if beside:
            raise click.UsageError(f"--rank-ladder does not go with --{beside[0].replace('_', '-')}")
        where = where_of(options)
        return run_ladder(scenario, source, wanted_of(options), waits_of(options), where, as_json=options["as_json"])
    return run_once(
        scenario,
        source,
        wanted_of(options),
        waits_of(options),
        where_of(options),
        repeat=options["repeat"],
        minimal=options["minimal"],
        stop_after=options["stop_after"],
        target=options["target"],
        diagnose=options["diagnose"],
        as_json=options["as_json"],
    )
