"""The one place where rooms are put together: a bench with its engine, a session, a search with its driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.bisect import SearchOptions, search
from repro.cli.engines import engine_for
from repro.cli.masks import redactor_for
from repro.cli.options import HERE, Waits, Where
from repro.domain.command import Command
from repro.domain.command.layout import gpu_count
from repro.domain.failure import Family, Signature
from repro.domain.finding import SearchResult
from repro.domain.fingerprint import Fingerprint
from repro.domain.scene import Scene
from repro.domain.stage import Stage
from repro.errors import InvalidFile, UsageError
from repro.machine.clock import Clock, SystemClock
from repro.probe.answer import Client
from repro.probe.client import HttpClient
from repro.recipe.assemble import load_scenario
from repro.recipe.write import from_scene
from repro.redact.redactor import Redactor
from repro.runner.watch import Deadlines
from repro.session.codec import value_to_json
from repro.session.history import write_history
from repro.session.journal import Event, Journal
from repro.session.workspace import Workspace
from repro.snapshot.collector import Context
from repro.snapshot.pinned import pinned_facts
from repro.trial.carry import Carrier
from repro.trial.drive import Driver, Limits
from repro.trial.keep import KeptRequests, MaskedLogs
from repro.trial.live import Bench
from repro.trial.progress import Observer

JOURNAL, SCENARIO, HISTORY = "journal.jsonl", "scenario.toml", "history.git"
LOGS, REQUESTS = "logs", "requests"


@dataclass(frozen=True)
class Finished:
    """A search that has ended, with everything that its journal holds."""

    result: SearchResult
    events: Sequence[Event]
    folder: Path


def client_factory(scene: Scene, clock: Clock) -> Callable[[str], Client]:
    """Clients that carry the server's API key where it is passed on by name."""
    key = os.environ.get("VLLM_API_KEY", "") if "VLLM_API_KEY" in scene.environment_from else ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return lambda base_url: HttpClient(base_url, clock, headers)


def fingerprint_reader(scene: Scene, redactor: Redactor) -> Callable[[], Fingerprint]:
    """Takes the facts of this scene that must not move during a search."""
    context = Context(
        redactor=redactor,
        command=scene.production,
        environment={**os.environ, **dict(scene.environment)},
        recipe_hash=scene.recipe_digest,
    )
    return lambda: pinned_facts(context)


def bench_for(
    scene: Scene,
    workspace: Workspace,
    folder: Path,
    redactor: Redactor,
    observer: Observer,
    waits: Waits,
    where: Where,
) -> Bench:
    """A bench whose servers run where the command or the user says, with their logs in the folder."""
    clock = SystemClock()
    logs = folder / LOGS
    logs.mkdir(exist_ok=True)
    return Bench(
        engine=engine_for(where, scene, clock),
        client_for=client_factory(scene, clock),
        clock=clock,
        records=workspace.servers,
        logs=logs,
        keep_log=MaskedLogs(redactor),
        observer=observer,
        deadlines=Deadlines(waits.start, waits.stall, stall_by_stage=waits.stages),
    )


def begin_session(
    workspace: Workspace, scene: Scene, notes: Sequence[str], claimed: frozenset[Signature], where: Where
) -> Path:
    """A new session folder whose journal says everything that a resume needs."""
    clock = SystemClock()
    redactor = redactor_for(scene.environment_from)
    folder = workspace.new("sessions", clock.now())
    text = from_scene(scene, notes=notes, redactor=redactor)
    (folder / SCENARIO).write_text(text, encoding="utf-8")
    facts = fingerprint_reader(scene, redactor)()
    journal = Journal(folder / JOURNAL, clock)
    try:
        journal.append(
            "session",
            scenario=text,
            recipe={"name": scene.recipe, "digest": scene.recipe_digest},
            precision=scene.precision,
            where=where.as_json(),
            claimed=[str(s) for s in sorted(claimed, key=str)],
            variables=[
                {
                    "name": v.name,
                    "kind": v.kind.value,
                    "minimal": value_to_json(v.minimal),
                    "production": value_to_json(v.production),
                    "ordinal": v.ordinal,
                }
                for v in scene.variables
            ],
            gpus=gpu_count(scene.production) if has_gpus(facts) else 0,
            fingerprint=facts.as_json(),
        )
    finally:
        journal.close()
    return folder


def has_gpus(facts: Fingerprint) -> bool:
    """Whether the driver told of any GPU."""
    devices = facts.pinned.get("gpu.devices")
    return devices is not None and devices.known and bool(devices.value)


def session_scene(folder: Path, begun: Event) -> Scene:
    """The scene that a session was begun with. Raises InvalidFile when its scenario is no longer the same."""
    path = folder / SCENARIO
    if not path.exists():
        path.write_text(begun["scenario"], encoding="utf-8")
    if path.read_text(encoding="utf-8") != begun["scenario"]:
        raise InvalidFile(
            f"{path} was changed since the session began",
            f"begin a new search with it: repro bisect {path}; or delete it, and the session's own is put back",
        )
    return load_scenario(path)


def run_session(
    workspace: Workspace, folder: Path, limits: Limits, waits: Waits, observer: Observer, scene: Scene | None = None
) -> Finished:
    """Runs or goes on with the session in `folder`, to its result."""
    clock = SystemClock()
    journal = Journal(folder / JOURNAL, clock)
    try:
        if not journal.events or journal.events[0]["event"] != "session":
            raise InvalidFile(f"{folder / JOURNAL}: holds no session", "begin a new search")
        begun = journal.events[0]
        scene = scene or session_scene(folder, begun)
        where = Where.from_json(begun["where"]) if "where" in begun else HERE
        redactor = redactor_for(scene.environment_from)
        carrier = Carrier(
            scene=scene,
            bench=bench_for(scene, workspace, folder, redactor, observer, waits, where),
            clock=clock,
            redactor=redactor,
            pinned=fingerprint_reader(scene, redactor),
            expected=Fingerprint.from_json(begun["fingerprint"]),
            keep_requests=KeptRequests(folder / REQUESTS, redactor),
        )
        driver = Driver(
            carrier, journal, lambda events: write_history(folder / HISTORY, events), clock, observer, limits
        )
        options = SearchOptions(begun["precision"], frozenset(parse_signature(s) for s in begun["claimed"]))
        result = driver.run(search(scene.variables, options))
        return Finished(result, tuple(journal.events), folder)
    finally:
        journal.close()


def parse_signature(text: str) -> Signature:
    """`STAGE/FAMILY` as a user writes it."""
    stage, _, family = text.partition("/")
    try:
        return Signature(Stage(stage), Family(family))
    except ValueError:
        raise UsageError(
            f"{text!r} is no STAGE/FAMILY",
            f"stages: {_names(Stage)}; families: {_names(Family)}",
        ) from None


def _names(words: type[Stage] | type[Family]) -> str:
    return " ".join(w.value for w in words)


def shell_line(command: Command, redactor: Redactor) -> str:
    """A command for people to read: one shell line, secrets masked."""
    return redactor.text(command.shell())
