"""The work of `repro check`: which facts, which recipe, the chain, and how it is told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

import click

from repro.cli.check_text import chain_text
from repro.cli.masks import redactor_for
from repro.cli.output import print_json
from repro.cli.scenes import FrozenScene, newest_scene, open_scene, scene_of_command
from repro.domain.compatibility import Node, RuleOutcome, SelfBuilt, check
from repro.domain.compatibility.image_rules import origin_kind
from repro.domain.fingerprint import Fact
from repro.errors import EXIT_GOOD, EXIT_INCONCLUSIVE, EXIT_REBUILD, UsageError
from repro.machine.clock import SystemClock
from repro.recipe.ask import conditions_of
from repro.recipe.find import CPU_DEMO, choose, find_recipe

EXIT_CODES = {
    RuleOutcome.HOLDS: EXIT_GOOD,
    RuleOutcome.BROKEN: EXIT_REBUILD,
    RuleOutcome.UNKNOWN: EXIT_INCONCLUSIVE,
}
# No node has more than a few dozen; the bound keeps a typing mistake from filling the memory.
_GPUS = re.compile(r"(?P<count>\d{1,3})\s*x\s*(?P<name>[A-Za-z][\w -]*?)(?::(?P<gb>\d+(?:\.\d+)?))?")
_SELF_BUILT = ("commit", "lock", "recipe", "rollback")


@dataclass(frozen=True)
class Asked:
    """What the user gave: snapshots or the words of a command, and what they declare."""

    snapshots: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    recipe: str | None = None
    self_built: str | None = None
    gpus: str | None = None


def run_check(asked: Asked, *, as_json: bool) -> int:
    """Checks, tells, and returns the exit code. Raises UsageError, InvalidFile, NotVllm."""
    if asked.snapshots and asked.words:
        raise UsageError("snapshots and a command were given", "give one of the two")
    declared = parse_self_built(asked.self_built) if asked.self_built is not None else None
    devices = parse_gpus(asked.gpus) if asked.gpus is not None else None
    scenes = [scene_of_command(asked.words, redactor_for())] if asked.words else _scenes(asked.snapshots)
    nodes = [_with_gpus(node, devices) if devices else node for node in nodes_of(scenes)]
    recipe, why = recipe_for(nodes, asked.recipe)
    conditions = conditions_of(find_recipe(recipe))
    day = today()
    chain = check(nodes, conditions, today=day, self_built=declared)
    origin = origin_kind(nodes, conditions.image, declared)
    if as_json:
        document = {
            **chain.as_json(),
            "recipe": {
                "name": recipe,
                "title": conditions.title,
                "source": conditions.source,
                "commit": conditions.commit,
                "read": conditions.read.isoformat() if conditions.read else None,
                "age_days": (day - conditions.read).days if conditions.read else None,
                "chosen": why,
            },
            "nodes": [node.name for node in nodes],
            "origin": origin,
            "self_built": vars(declared) if declared else None,
        }
        print_json("check", document)
    else:
        click.echo(chain_text(chain, conditions, [node.name for node in nodes], why, origin))
    return EXIT_CODES[chain.outcome]


def parse_self_built(text: str) -> SelfBuilt:
    """`commit=…,lock=…` as a declaration. Raises UsageError for another key, or one without a value."""
    given: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, _, value = part.partition("=")
        if key not in _SELF_BUILT or not value.strip():
            raise UsageError(
                f"--self-built: {part!r} is not understood",
                "write commit=SHA,lock=FILE,recipe=FILE,rollback=NOTE; each of them once, values without commas",
            )
        given[key] = value.strip()
    return SelfBuilt(**given)


def parse_gpus(text: str) -> list[dict[str, Any]]:
    """`8xMI355X:288` as devices. Raises UsageError."""
    match = _GPUS.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"--gpus {text!r} is not understood", "write it as 8xMI355X, or with each one's GB: 8xMI355X:288"
        )
    memory = round(float(match["gb"]) * 10**9) if match["gb"] else None
    return [{"index": i, "name": match["name"], "memory_total": memory} for i in range(int(match["count"]))]


def _with_gpus(node: Node, devices: list[dict[str, Any]]) -> Node:
    """The node with declared GPUs where none were measured; what was measured stays."""
    if node.devices is not None:
        return node
    return Node(node.name, {**node.facts, "gpu.devices": Fact.declared(devices, "--gpus")})


def _scenes(names: Sequence[str]) -> list[FrozenScene]:
    return [open_scene(name) for name in names] if names else [newest_scene()]


def nodes_of(scenes: Sequence[FrozenScene]) -> list[Node]:
    """One node a scene. Two scenes of one host are no two nodes: UsageError."""
    nodes = [scene.node for scene in scenes]
    for index, node in enumerate(nodes):
        twin = next((i for i in range(index) if _same_host(nodes[i], node)), None)
        if twin is not None:
            raise UsageError(
                f"{scenes[twin].name} and {scenes[index].name} are both of host {node.name}",
                "give one snapshot for each node; `repro diff A B` compares two of one host",
            )
    return nodes


def _same_host(a: Node, b: Node) -> bool:
    """The same name is not enough, since containers and clones share names; the boot tells."""
    names = ("host.hostname", "host.boot_time")
    pairs = [(a.fact(name), b.fact(name)) for name in names]
    return all(left.known and right.known and left.value == right.value for left, right in pairs)


def recipe_for(nodes: Sequence[Node], asked: str | None) -> tuple[str, str]:
    """The recipe's name and why it is this one."""
    if asked is not None:
        return asked, "as asked"
    versions = [str(node.vllm_version.value) for node in nodes if node.vllm_version.known]
    if any(version.endswith("+cpu") for version in versions):
        return CPU_DEMO, "since this vLLM is built for CPU; --recipe takes another"
    models = [node.command.model for node in nodes if node.command is not None and node.command.model]
    gpus = [device.name for node in nodes for device in node.devices or () if device.name]
    if not models:
        return choose("", gpus=gpus), "since no command is known; --recipe takes another"
    return choose(models[0], gpus=gpus), f"by the model {models[0]} and the GPUs; --recipe takes another"


def today() -> date:
    """The day by this machine's clock, in UTC."""
    return datetime.fromtimestamp(SystemClock().now(), timezone.utc).date()
