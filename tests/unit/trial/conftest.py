"""An engine whose servers are scripts, and clients that answer for them: what a bench and a carrier work with."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from repro.domain.command import parse
from repro.domain.fingerprint import Fact, Fingerprint
from repro.domain.launch import Launch
from repro.domain.request import RequestSet
from repro.domain.scene import Scene
from repro.domain.trial import Fresh, Purpose, Trial
from repro.domain.variable import Kind, Variable
from repro.errors import MissingProgram
from repro.machine.family import Activity
from repro.probe.answer import HttpAnswer, NetworkFault
from repro.redact.redactor import Redactor
from repro.runner.port import Ending, Place, StopReport
from repro.runner.watch import Deadlines
from repro.triage import ExitEvidence
from repro.trial.carry import Carrier
from repro.trial.keep import KeptRequests, MaskedLogs
from repro.trial.live import Bench
from tests.fakes.clock import FakeClock

SECRET = "hf_" + "Zq8Lw3Xr5Tn7Vb2Mc9Kd4Jf6Hg1Ps0Ya"
BANNER = "(APIServer pid=10) INFO 12-01 10:00:00 [utils.py:233] non-default args: {'model': 'm'}\n"
READY = "(APIServer pid=10) INFO:     Application startup complete.\n"
WEIGHTS = (
    "(EngineCore pid=20) INFO 12-01 10:00:09 [core.py:105] Initializing a V1 LLM engine (v0.32.0) with config: m\n"
    "(EngineCore pid=20) INFO 12-01 10:00:12 [default_loader.py:300] Loading weights took 0.02 seconds\n"
)
REFUSED = HttpAnswer(None, fault=NetworkFault.REFUSED)


def answer(content: str = "fine") -> HttpAnswer:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 40, "completion_tokens": 2}
    return HttpAnswer(200, json.dumps({"choices": [choice], "usage": usage}))


@dataclass
class ScriptedServer:
    """Lives until `evidence` is set or it is stopped; `chat` answers its chat requests."""

    id: str
    log: Path
    base_url: str
    launch: Launch
    chat: Callable[[ScriptedServer, dict[str, Any]], HttpAnswer]
    queries: float = 0.0
    evidence: ExitEvidence | None = None
    stops: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)

    def exit_evidence(self) -> ExitEvidence | None:
        return self.evidence

    def stop(self) -> StopReport:
        self.stops += 1
        self.evidence = self.evidence or ExitEvidence(0, stopped_by_us=True)
        return StopReport(Ending.INTERRUPTED, 0, 0.0)

    def activity(self) -> Activity:
        return Activity()

    def where_it_waits(self) -> tuple[str, ...]:
        return ()

    def stranger(self) -> str | None:
        return None

    def notes(self) -> tuple[str, ...]:
        return ()

    def dies(self, *lines: str) -> HttpAnswer:
        """Tells its fault, ends, and breaks the connection."""
        with self.log.open("a") as log:
            log.writelines(f"{line}\n" for line in lines)
        self.evidence = ExitEvidence(1)
        return HttpAnswer(None, fault=NetworkFault.RESET, detail="connection reset")

    def get(self, path: str) -> HttpAnswer:
        if self.evidence is not None:
            return REFUSED
        if path == "/metrics":
            text = f"vllm:prefix_cache_queries_total {self.queries}\nvllm:prompt_tokens_total 40.0\n"
            return HttpAnswer(200, text)
        return HttpAnswer(200, json.dumps({"data": [{"id": "m/x", "max_model_len": 4096}]}))

    def post(self, path: str, body: dict[str, Any]) -> HttpAnswer:
        if self.evidence is not None:
            return REFUSED
        if path == "/tokenize":
            return HttpAnswer(200, json.dumps({"count": len(body["messages"][0]["content"].split())}))
        if path == "/v1/completions":
            return answer()
        self.asked.append(body)
        return self.chat(self, body)


@dataclass
class ScriptedEngine:
    """Starts scripted servers. `printed` is what the next ones log at once; `dead` ones have ended already."""

    chat: Callable[[ScriptedServer, dict[str, Any]], HttpAnswer] = lambda _server, _body: answer()
    printed: str = BANNER + WEIGHTS + READY
    dead: bool = False
    queries: float = 0.0
    missing: bool = False
    servers: list[ScriptedServer] = field(default_factory=list)

    def start(self, launch: Launch, place: Place) -> ScriptedServer:
        if self.missing:
            raise MissingProgram("there is no vllm here", "install it")
        number = len(self.servers)
        place.log.write_text(self.printed)
        server = ScriptedServer(f"s{number}", place.log, f"http://{number}", launch, self.chat, self.queries)
        server.evidence = ExitEvidence(1) if self.dead else None
        self.servers.append(server)
        return server

    def client(self, base_url: str) -> Client:
        return Client(next(s for s in self.servers if s.base_url == base_url))


@dataclass
class Client:
    server: ScriptedServer

    def get(self, path: str, deadline_s: float) -> HttpAnswer:
        return self.server.get(path)

    def post(self, path: str, body: dict[str, Any], deadline_s: float) -> HttpAnswer:
        return self.server.post(path, body)


class Nobody:
    def told(self, event: object) -> None:
        """Nobody listens."""


SCENE = Scene(
    "s",
    (
        Variable("input_tokens", Kind.REQUEST, 20, 60, ordinal=True),
        Variable("--enforce-eager", Kind.LAUNCH, None, True, parts=("--enforce-eager",)),
    ),
    minimal=parse("vllm serve m/x --no-enable-prefix-caching"),
    production=parse("vllm serve m/x --no-enable-prefix-caching --enforce-eager"),
)


@dataclass
class Shop:
    """A carrier with all that it works with at hand; `facts` are the pinned ones, as they are now."""

    folder: Path
    engine: ScriptedEngine = field(default_factory=ScriptedEngine)
    facts: dict[str, str] = field(default_factory=lambda: {"model.digest": "a"})
    scene: Scene = SCENE
    kept: list[tuple[str, RequestSet]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.redactor = Redactor({"HF_TOKEN": SECRET})
        self.clock = FakeClock()
        keep_requests = KeptRequests(self.folder / "requests", self.redactor)

        def keep(trial: str, requests: RequestSet) -> None:
            self.kept.append((trial, requests))
            keep_requests(trial, requests)

        (self.folder / "logs").mkdir()
        self.bench = Bench(
            engine=self.engine,
            client_for=lambda url: self.engine.client(url),
            clock=self.clock,
            records=self.folder / "servers",
            logs=self.folder / "logs",
            keep_log=MaskedLogs(self.redactor),
            observer=Nobody(),
            deadlines=Deadlines(total_s=60, stall_s=30),
        )
        self.carrier = Carrier(
            self.scene, self.bench, self.clock, self.redactor, self.now, self.now(), keep_requests=keep
        )

    def now(self) -> Fingerprint:
        return Fingerprint({name: Fact.measured(value) for name, value in self.facts.items()})

    @property
    def logs(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "logs").iterdir())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def trial() -> Callable[..., Trial]:
    """A trial of the minimal configuration with some values changed."""

    def make(repetition: int = 0, fresh: Fresh = Fresh.ANY, values: Any = None, **more: Any) -> Trial:
        configuration = SCENE.minimal_configuration
        for name, value in (values or {}).items():
            configuration = configuration.with_value(name, value)
        return Trial(configuration, repetition, None, Purpose.LADDER, fresh, **more)

    return make


@pytest.fixture
def secret() -> str:
    return SECRET


@pytest.fixture
def weights_log() -> str:
    return BANNER + WEIGHTS


@pytest.fixture
def say() -> Callable[..., HttpAnswer]:
    return answer
