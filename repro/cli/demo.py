"""`repro demo`: the main job on the simulator, as it would go on eight GPUs."""

from __future__ import annotations

import click

from repro.cli.options import json_option


@click.command("demo")
@json_option
def command(as_json: bool) -> int:
    """Search a Kimi-K3-like failure on the built-in simulator: no GPU, no weights, under a minute.

    The search meets an error-type change on its way, goes back to the last stable baseline and ends with a proven
    pair. Session and report are kept below .repro/ like those of a real search.
    """
    from repro.cli.bisect_session import begin
    from repro.cli.options import Source, Waits, Wanted
    from repro.cli.output import talk
    from repro.recipe.find import data_folder

    scenario = data_folder("scenarios") / "demo-kimi-k3.toml"
    talk(f"scenario {scenario}")
    return begin(scenario, Source(), Wanted(), None, None, (None, None), Waits(120.0, 60.0), as_json)
