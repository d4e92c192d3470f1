"""A world that a search can be driven over without a machine: one server at a time, and a rule that says what fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Outcome, Passed
from repro.domain.stage import Stage
from repro.domain.trial import Answer, Cost, Fresh, ServerFacts, Trial
from repro.domain.variable import Configuration, Kind, Variable
from repro.trial.carry import Carried

TARGET = Failure(Stage.SERVING, Family.ILLEGAL_MEMORY_ACCESS, root_line="CUDA error: an illegal memory access")
FOREIGN = Failure(Stage.ENGINE_INIT, Family.KERNEL_COMPILE, root_line="the kernel did not compile")
INPUT = Variable("input_tokens", Kind.REQUEST, 128, 60000, ordinal=True)
CACHING = Variable("prefix_caching", Kind.LAUNCH, False, True)
FP8 = Variable("--kv-cache-dtype", Kind.LAUNCH, None, "fp8")
QUANTIZED = Variable("--attention-config", Kind.LAUNCH, None, "q")
VARIABLES = (INPUT, FP8, CACHING, QUANTIZED)
LAUNCH_S, REQUEST_S = 100.0, 1.0


def outcome_of(configuration: Configuration) -> Outcome:
    """Long prompts with prefix caching are the cause; fp8 without its attention settings fails otherwise."""
    length = configuration["input_tokens"]
    assert isinstance(length, int)
    if configuration["--kv-cache-dtype"] and not configuration["--attention-config"]:
        return Failed(FOREIGN)
    return Failed(TARGET) if configuration["prefix_caching"] and length >= 32768 else Passed()


@dataclass
class WorldCarrier:
    """Carries trials out in that world. `before` is called before each try and may raise or change its outcome."""

    before: Callable[[Trial], Outcome | None] = lambda _trial: None
    carried: list[str] = field(default_factory=list)
    launches: int = 0
    running: object = None
    served: int = 0
    closed: int = 0

    def needs_launch(self, trial: Trial) -> bool:
        return trial.fresh is Fresh.REQUIRED or self.running != self._launch(trial)

    def carry(self, trial: Trial) -> Carried:
        new = self.needs_launch(trial)
        self.served = 0 if new else self.served
        self.launches += new
        self.running = self._launch(trial)
        outcome = self.before(trial) or outcome_of(trial.configuration)
        self.carried.append(trial.id)
        alive = not isinstance(outcome, Failed)
        server = ServerFacts(f"server-{self.launches}", str(self.running), self.served, alive)
        self.running = self.running if alive else None
        self.served += 1
        cost = Cost(int(new), LAUNCH_S if new else REQUEST_S)
        answer = Answer(trial.id, outcome, int(not alive), 1, cost, server)
        return Carried(answer, f"server-{self.launches:03d}.log.gz", {"prompt_tokens": 5})

    def close(self) -> None:
        self.closed += 1
        self.running = None

    def _launch(self, trial: Trial) -> object:
        names = {v.name for v in VARIABLES if v.kind is Kind.LAUNCH}
        return tuple((k, v) for k, v in trial.configuration.values if k in names)
