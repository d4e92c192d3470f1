"""`repro bisect`: from a production command or a scenario to a proven finding; also its plan and its resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from repro.cli.options import (
    FILE,
    Source,
    Wanted,
    json_option,
    place_options,
    request_options,
    source_options,
    wait_options,
    waits_of,
    where_of,
)


@click.command("bisect", context_settings={"ignore_unknown_options": False})
@click.option("--scenario", type=FILE, help="A scenario file from `repro init`.")
@source_options
@request_options
@wait_options
@place_options
@click.option(
    "--precision",
    metavar="exact|FRACTION",
    help="How close a threshold is narrowed: 0.05 is 5 %, exact is to the unit.  [default: 0.05]",
)
@click.option(
    "--target", metavar="STAGE/FAMILY", help="What production is said to show; anything else ends the search."
)
@click.option("--budget-launches", type=click.IntRange(min=1), help="Stop before more launches than this.")
@click.option("--budget-minutes", type=click.FloatRange(min=0, min_open=True), help="Stop after this much trial time.")
@click.option("--plan", "only_plan", is_flag=True, help="Print what would be run and what it can cost; start nothing.")
@click.option(
    "--launch-minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=15.0,
    show_default=True,
    help="What one launch is taken to cost in the plan.",
)
@click.option("--resume", is_flag=True, help="Go on with the newest session, or the one named by --session.")
@click.option("--session", "session_id", metavar="ID", help="The session to resume.")
@json_option
def command(**options: Any) -> int:
    """Find the smallest setting that makes production fail.

    Production's own command comes after `--`; NAME=value before it are environment variables of production. The
    minimal command comes from the recipe. A scenario file may be given instead, as the only word or by --scenario.
    """
    from repro.cli.bisect_session import begin, plan, resume

    scenario, source = scenario_or_source(options)
    wanted = wanted_of(options)
    precision = _precision(options["precision"])
    waits = waits_of(options)
    budget = (options["budget_launches"], options["budget_minutes"])
    if options["resume"] or options["session_id"]:
        _only_for_resuming()
        return resume(options["session_id"], budget, waits, options["as_json"])
    if options["only_plan"]:
        return plan(scenario, source, wanted, precision, options["launch_minutes"], options["as_json"])
    target, as_json, where = options["target"], options["as_json"], where_of(options)
    return begin(scenario, source, wanted, precision, target, budget, waits, as_json, where)


# What a resumed session does not already know.
_RESUMING = {"resume", "session_id", "budget_launches", "budget_minutes", "start_timeout", "stall", "as_json"}


def _only_for_resuming() -> None:
    """An option that would have no effect is refused, not ignored."""
    context = click.get_current_context()
    given = click.core.ParameterSource.COMMANDLINE
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in _RESUMING and context.get_parameter_source(name) is given and context.params.get(name):
            called = "the command" if isinstance(parameter, click.Argument) else parameter.opts[0]
            raise click.UsageError(f"--resume takes everything from the session; leave {called} away")


def scenario_or_source(options: dict[str, Any]) -> tuple[Path | None, Source]:
    """A single word that is a TOML file is a scenario; everything else is a command."""
    words = options["words"]
    scenario = options["scenario"]
    if scenario is None and len(words) == 1 and words[0].endswith(".toml"):
        scenario, words = Path(words[0]), ()
    return scenario, Source(words, options["file"], options["pid"], options["container"], options["log"])


def wanted_of(options: dict[str, Any]) -> Wanted:
    """The request values that were given."""
    return Wanted(
        options["input_tokens"],
        options["max_tokens"],
        options["concurrency"],
        options["stream"],
        options["request"],
        options["tools"],
        options["recipe"],
    )


def _precision(text: str | None) -> float | None:
    if text is None:
        return None
    if text == "exact":
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise click.BadParameter(f"{text!r} is neither `exact` nor a fraction such as 0.05", param_hint="--precision")
    return value
