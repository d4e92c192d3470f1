"""Sessions without a server: the real search, fed by a rule that says what each configuration does, journaled."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from repro.bisect import SearchOptions, search
from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.scene import Scene
from repro.domain.stage import Stage
from repro.domain.trial import Answer, Cost, Fresh, Stop, Trial
from repro.domain.variable import Configuration
from repro.recipe.assemble import load_scenario
from repro.session.codec import answer_to_json, ask_to_json, result_to_json
from repro.session.journal import Event

ROOT = "(Worker_TP0 pid=12) ERROR 12-01 15:16:36 [x.py:9] torch.AcceleratorError: CUDA error: an illegal memory access"
TEMPLATE = "torch.AcceleratorError: CUDA error: an illegal memory access"
ROOT_NO = 41
BEGUN = 1796138163.387
STAGES = tuple(s for s in Stage if s is not Stage.NONE)
TARGET = Failure(
    Stage.SERVING, Family.ILLEGAL_MEMORY_ACCESS, ROOT, ROOT_NO, TEMPLATE, reached=STAGES[:-1], confidence=0.9
)
FOREIGN = Failure(Stage.ENGINE_INIT, Family.KERNEL_COMPILE, "PTXASError", 3, "PTXASError", reached=STAGES[:3])
SCENARIO = """\
schema = "repro/scenario"
version = 1
name = "long prompts"
recipe = "generic"

[environment]
env = {VLLM_LOGGING_LEVEL = "INFO"}
env_from = ["HF_TOKEN"]

[minimal]
command = ["vllm", "serve", "/models/it's here", "--no-enable-prefix-caching"]
input_tokens = 100
max_tokens = 8

[production]
command = ["vllm", "serve", "/models/it's here", "--enable-prefix-caching", "--kv-cache-dtype", "fp8", "--seed", "7"]
input_tokens = 9000
max_tokens = 8
concurrency = 2

[[variable]]
name = "input_tokens"
[[variable]]
name = "concurrency"
[[variable]]
name = "--kv-cache-dtype"
[[variable]]
name = "prefix_caching"
[[variable]]
name = "--seed"
"""
Oracle = Callable[[Configuration], Outcome]


def long_with_cache(configuration: Configuration) -> Outcome:
    """The usual fault: long prompts with prefix caching; and another error on the way to it."""
    tokens = configuration["input_tokens"]
    if configuration["--kv-cache-dtype"] == "fp8" and not configuration["prefix_caching"]:
        return Failed(FOREIGN)
    if configuration["prefix_caching"] and isinstance(tokens, int) and tokens >= 4000:
        return Failed(TARGET)
    return Passed(STAGES)


@dataclass(frozen=True)
class Session:
    folder: Path
    events: list[Event]
    scene: Scene

    def journal(self) -> None:
        """Writes the events as they are now."""
        text = "".join(json.dumps(event) + "\n" for event in self.events)
        (self.folder / "journal.jsonl").write_text(text, encoding="utf-8")


@dataclass
class _Writer:
    folder: Path
    scene: Scene
    oracle: Oracle
    events: list[Event]
    servers: int = 0

    def note(self, event: str, **facts: Any) -> None:
        self.events.append({"n": len(self.events), "at": BEGUN + len(self.events), "event": event, **facts})

    def carry(self, trial: Trial) -> Answer:
        outcome = self.oracle(trial.configuration)
        launches = 1 if trial.fresh is Fresh.REQUIRED or isinstance(outcome, Failed) else 0
        self.servers += launches
        log = f"server-{max(1, self.servers):03d}.log.gz"
        missed = int(not isinstance(outcome, Passed))
        answer = Answer(trial.id, outcome, missed, 1, Cost(launches, 1.5))
        self._keep(trial, log, outcome)
        self.note("finished", answer=answer_to_json(answer), log=log, requests={"prompt_tokens": 9000})
        return answer

    def _keep(self, trial: Trial, log: str, outcome: Outcome) -> None:
        lines = [f"INFO line {n}" for n in range(1, 201)]
        if isinstance(outcome, Failed):
            lines[(outcome.failure.root_line_no or 1) - 1] = outcome.failure.root_line or ""
        write_gz(self.folder / "logs" / log, "".join(f"{line}\n" for line in lines))
        shape = self.scene.shape(trial.configuration)
        bodies = [{"model": "m", "prompt": f"{shape.input_tokens} {n}"} for n in range(shape.concurrency)]
        kept = {"path": "/v1/completions", "at_once": shape.concurrency, "bodies": bodies, "omitted": 0}
        write_gz(self.folder / "requests" / f"{trial.id}.json.gz", json.dumps(kept))


def write_gz(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as out, gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
        packed.write(text.encode())


def run_search(folder: Path, oracle: Oracle, stop_after: int | None = None) -> Session:
    """A session folder as a search leaves it; with `stop_after` the budget ends it after so many asks."""
    folder.mkdir(parents=True)
    (folder / "scenario.toml").write_text(SCENARIO, encoding="utf-8")
    scene = load_scenario(folder / "scenario.toml")
    writer = _Writer(folder, scene, oracle, [])
    facts = {
        "pinned": {
            "host.kernel": {"value": "Linux | 6", "label": "measured"},
            "gpu.driver_version": {"value": None, "label": "unavailable", "reason": "no NVML"},
        },
        "observed": {"host.load": {"value": [1.0], "label": "measured"}},
    }
    recipe = {"name": scene.recipe, "digest": scene.recipe_digest}
    writer.note("session", scenario=SCENARIO, recipe=recipe, gpus=0, fingerprint=facts, claimed=[], precision=0.05)
    searching = search(scene.variables, SearchOptions(scene.precision))
    asks = 0
    try:
        ask = next(searching)
        while True:
            if asks == stop_after:
                ask = searching.send(Stop("the budget of launches is spent"))
                continue
            asks += 1
            writer.note("ask", **ask_to_json(ask))
            ask = searching.send(tuple(writer.carry(trial) for trial in ask.trials))
    except StopIteration as end:
        writer.note("result", **result_to_json(end.value))
    session = Session(folder, writer.events, scene)
    session.journal()
    return session


@pytest.fixture
def found(tmp_path: Path) -> Session:
    """A session that ended in a proven finding of two members."""
    return run_search(tmp_path / "20261201-151603", long_with_cache)


ORACLES: dict[str, Oracle] = {
    "found": long_with_cache,
    "minimal_fails": lambda _: Failed(TARGET),
    "not_reproduced": lambda _: Passed(STAGES),
    "inconclusive": lambda _: Unresolved("another job took the GPU"),
}


@pytest.fixture(params=sorted(ORACLES))
def any_session(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Session]:
    """(how it ended, the session) for each way a search can end."""
    return request.param, run_search(tmp_path / "20261201-151603", ORACLES[request.param])


@pytest.fixture
def make_session(tmp_path: Path) -> Callable[..., Session]:
    """`make_session(oracle, stop_after=None)`: each call a session of its own."""
    made = count(1)
    return lambda oracle, stop_after=None: run_search(tmp_path / f"s{next(made)}", oracle, stop_after)


@pytest.fixture(name="long_with_cache")
def _long_with_cache() -> Oracle:
    return long_with_cache
