"""The shipped demo meets another error before its target, as the fault file's own conditions say."""

from __future__ import annotations

import json
from pathlib import Path

from repro.domain.failure import Family
from repro.domain.scene import Scene
from repro.domain.stage import Stage
from repro.domain.variable import Configuration
from repro.recipe.assemble import load_scenario
from repro.recipe.find import data_folder
from repro.simulator.arguments import destination_of, parse
from repro.simulator.condition import Condition, Facts

DEMO = data_folder("scenarios") / "demo-kimi-k3.toml"


def shown(scene: Scene, configuration: Configuration) -> Family | None:
    """The family that the simulator would play for this configuration; None where it serves."""
    argv = scene.launch(configuration).command.argv()
    arguments = parse(list(argv[argv.index("serve") + 1 :]))
    shape = scene.shape(configuration)
    names = {"prefix_caching": bool(arguments.value("enable_prefix_caching")), "input_tokens": shape.input_tokens}
    facts = Facts(names, lambda flag: arguments.value(destination_of(flag) or ""))
    faults = json.loads(Path(dict(scene.environment)["REPRO_SIMULATOR_FAULTS"]).read_text())["fault"]
    held = [fault for fault in faults if Condition(fault["when"]).holds(facts)]
    first = min(held, key=lambda fault: Stage(fault["stage"]).position, default=None)
    return None if first is None else Family(first["family"])


def test_production_shows_the_target_and_minimal_serves() -> None:
    scene = load_scenario(DEMO)
    assert shown(scene, scene.minimal_configuration) is None
    assert shown(scene, scene.production_configuration) is Family.ILLEGAL_MEMORY_ACCESS


def test_the_ladder_meets_another_error_before_the_target() -> None:
    scene = load_scenario(DEMO)
    at = scene.minimal_configuration
    met: list[tuple[str, Family]] = []
    for variable in scene.variables:
        tried = at.with_value(variable.name, variable.production)
        family = shown(scene, tried)
        if family is None:
            at = tried
        else:
            met.append((variable.name, family))
    assert met == [
        ("--kv-cache-dtype", Family.KERNEL_COMPILE),
        ("prefix_caching", Family.ILLEGAL_MEMORY_ACCESS),
    ]


def test_the_threshold_lies_between_the_ends() -> None:
    scene = load_scenario(DEMO)
    alone = scene.minimal_configuration.with_value("prefix_caching", True)
    assert shown(scene, alone) is None
    assert shown(scene, alone.with_value("input_tokens", 32767)) is None
    assert shown(scene, alone.with_value("input_tokens", 32768)) is Family.ILLEGAL_MEMORY_ACCESS


def test_the_request_is_what_the_demo_promises() -> None:
    scene = load_scenario(DEMO)
    shape = scene.shape(scene.production_configuration)
    assert (shape.input_tokens, shape.max_tokens, shape.concurrency) == (60000, 512, 4)
    assert scene.recipe == "kimi-k3-b300"
