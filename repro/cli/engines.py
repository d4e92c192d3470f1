"""Which engine starts the servers of a scene: the command's form decides, unless the user says where to run."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from repro.cli.options import Source, Wanted, Where
from repro.cli.production import ready_scene
from repro.domain.command import parse
from repro.domain.launch import Launch
from repro.domain.scene import Scene
from repro.domain.variable import Kind
from repro.errors import UsageError
from repro.machine.clock import Clock, SystemClock
from repro.machine.detached import must_exist
from repro.probe.client import HttpClient
from repro.recipe.minimal import Derived
from repro.runner.docker import DockerEngine
from repro.runner.endpoint import EndpointEngine, must_be_request_variables
from repro.runner.environment import launch_environment
from repro.runner.nodes import NodesEngine, parse_node
from repro.runner.port import Engine
from repro.runner.process import ProcessEngine
from repro.runner.record import MARK

DOCKER, PROCESS = "docker", "process"
_ANSWER_S = 10.0


def engine_for(where: Where, scene: Scene, clock: Clock) -> Engine:
    """Raises UsageError for a place that is not there, or does not go with the scene's command."""
    if where.endpoint is not None:
        return EndpointEngine(where.endpoint)
    if where.nodes:
        return NodesEngine([parse_node(text, rank, clock) for rank, text in enumerate(where.nodes)], clock)
    if scene.production.container is not None:
        return DockerEngine(clock)
    return ProcessEngine(clock)


def must_be_startable(where: Where, scene: Scene, searched: bool = False) -> None:
    """What can be known to prevent both ends from starting, before anything is written. `searched`: every variable of
    the scene will be tried.

    Raises MissingProgram or UsageError.
    """
    if where.endpoint is not None:
        if searched:
            must_be_request_variables(scene.variables)
        return
    for configuration in (scene.minimal_configuration, scene.production_configuration):
        launch = scene.launch(configuration)
        _fits(where, launch)
        environment = launch_environment(launch, os.environ, (MARK, ""))
        must_exist(launch.command.argv()[0], environment, None)


def _fits(where: Where, launch: Launch) -> None:
    inside = launch.command.container is not None
    if where.engine == PROCESS and inside:
        raise UsageError(
            "the command starts a container, and --engine process was asked for",
            "give the `vllm serve …` that runs inside it, on a machine where that vLLM is",
        )
    if where.engine == DOCKER and not inside:
        raise UsageError(
            "the command starts no container, and --engine docker was asked for",
            "give the whole `docker run …` line",
        )
    kinds = {text.partition(":")[0] for text in where.nodes}
    if ("netns" if inside else DOCKER) in kinds:
        raise UsageError(
            f"the command {'starts' if inside else 'starts no'} container, and the nodes are {', '.join(where.nodes)}",
            "a `docker run …` goes with --node docker:NETWORK, a plain `vllm serve …` with --node netns:NAME",
        )


def command_of_endpoint(endpoint: str, clock: Clock) -> tuple[str, ...]:
    """What stands for the command of a server that somebody else runs. Raises UsageError when it does not answer."""
    engine = EndpointEngine(endpoint)
    with HttpClient(engine.base_url, clock) as client:
        answer = client.get("/v1/models", _ANSWER_S)
    body = answer.json
    models = body.get("data") if isinstance(body, dict) else None
    if not models:
        raise UsageError(
            f"{engine.base_url} does not tell which model it serves: {answer.excerpt()}",
            "check the address, or give the server's command after `--`",
        )
    return ("vllm", "serve", str(models[0]["id"]))


def placed_scene(
    where: Where, scenario: Path | None, source: Source, wanted: Wanted, precision: float | None
) -> Derived:
    """The scene to work on. A server that somebody else runs needs no command: then only its requests are variables."""
    if where.endpoint is None or scenario is not None or source != Source():
        return ready_scene(scenario, source, wanted, precision)
    words = command_of_endpoint(where.endpoint, SystemClock())
    derived = ready_scene(None, Source(words), wanted, precision)
    scene = derived.scene
    kept = tuple(v for v in scene.variables if v.kind is Kind.REQUEST)
    bare = parse(words)  # nothing that a recipe or a default would say about it is known of that server
    note = f"{where.endpoint} is somebody else's server: no trial meets a fresh one, and its log is not seen"
    return Derived(replace(scene, variables=kept, production=bare, minimal=bare), (*derived.notes, note))
