"""`repro init`: a production command becomes a scenario file, ready for `bisect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from repro.cli.options import FILE, json_option, request_options, source_options


@click.command("init")
@source_options
@request_options
@click.option("-o", "--output", type=FILE, help="Where to write the scenario.  [default: NAME.toml in this folder]")
@json_option
def command(**options: Any) -> int:
    """Write a scenario: the minimal and the production command, the request set and the variables between them.

    The command comes after `--`, or from --file, --pid, --container or --log. Values of secrets are never written: they
    are named under `env_from` and passed through when a server is started.
    """
    from repro.cli.bisect import scenario_or_source, wanted_of
    from repro.cli.masks import redactor_for
    from repro.cli.output import print_json, talk
    from repro.cli.production import derive_scene
    from repro.domain.variable import shown
    from repro.errors import InvalidFile
    from repro.recipe.write import from_scene

    _, source = scenario_or_source({**options, "scenario": Path()})
    derived = derive_scene(source, wanted_of(options), 0.05)
    scene = derived.scene
    path: Path = options["output"] or Path(f"{scene.name}.toml")
    text = from_scene(scene, notes=derived.notes, redactor=redactor_for(scene.environment_from))
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidFile(f"{path} is there already", "name another file with -o; nothing is overwritten") from None
    except OSError as error:
        raise InvalidFile(f"{path} cannot be written: {error.strerror}", "name another file with -o") from error
    for note in derived.notes:
        talk(f"note: {note}")
    if options["as_json"]:
        names = [v.name for v in scene.variables]
        print_json("init", {"scenario": str(path), "recipe": scene.recipe, "variables": names})
        return 0
    click.echo(f"{path}: recipe {scene.recipe}, {len(scene.variables)} variables")
    for variable in scene.variables:
        click.echo(f"  {variable.name}: {shown(variable.minimal)} -> {shown(variable.production)}")
    click.echo(f"next: repro bisect {path} --plan")
    return 0
