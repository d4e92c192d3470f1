"""What the stand-in prints when it fails is read by the triage as the failure that was asked for."""

from __future__ import annotations

import pytest

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.simulator import failure_log, startup_log
from repro.simulator.arguments import ServeArguments, parse
from repro.simulator.condition import Condition
from repro.simulator.dialect import DIALECTS, Dialect
from repro.simulator.failure_log import Wording
from repro.simulator.fault_text import TEXTS, moment_of
from repro.simulator.faults import Fault
from repro.simulator.log import Log
from repro.simulator.request_body import read_chat
from repro.triage.stream import triage_text

ONE_GPU = parse(["tiny"])
EIGHT_GPUS = parse("moonshotai/Kimi-K3 -tp 8 --trust-remote-code --load-format fastsafetensors".split())
STARTING = {
    Stage.CONTAINER_INIT: [Family.IMPORT_ERROR],
    Stage.DEVICE_RECOGNITION: [Family.DRIVER_MISMATCH, Family.CUDA_INIT],
    Stage.COMM_GROUP: [Family.NCCL, Family.GLOO, Family.RENDEZVOUS_TIMEOUT, Family.SHM],
    Stage.WEIGHT_ACCESS: [
        *(Family.WEIGHTS_MISSING, Family.WEIGHTS_CORRUPT, Family.PERMISSION, Family.HUB_UNREACHABLE),
    ],
    Stage.ENGINE_INIT: [
        *(Family.ARG_ERROR, Family.CONFIG_INVALID, Family.UNSUPPORTED_ARCH, Family.OOM_GPU, Family.KERNEL_COMPILE),
        *(Family.KV_CACHE_TOO_SMALL, Family.ILLEGAL_MEMORY_ACCESS, Family.TIMEOUT, Family.OTHER),
    ],
    Stage.API_READY: [Family.PORT_IN_USE],
}
SERVING = [
    *(
        Family.ILLEGAL_MEMORY_ACCESS,
        Family.OOM_GPU,
        Family.NCCL,
        Family.GLOO,
        Family.KERNEL_COMPILE,
        Family.PREFIX_CACHE,
    ),
    *(Family.TIMEOUT, Family.ENGINE_DEAD, Family.OTHER),
]


def wording(arguments: ServeArguments) -> Wording:
    facts = startup_log.facts_of(arguments.model)
    return Wording(arguments, facts.architecture, startup_log.max_model_len_of(arguments))


def asked(stage: Stage, family: Family, message: str | None = None) -> Fault:
    text = TEXTS[family]
    do = text.serving_deed if stage is Stage.SERVING else text.starting_deed
    return Fault(stage, family, Condition("true"), do, message=message)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("arguments", [ONE_GPU, EIGHT_GPUS], ids=["one", "eight"])
@pytest.mark.parametrize(("stage", "family"), [(stage, family) for stage, all_ in STARTING.items() for family in all_])
def test_a_failing_start_is_read_as_asked(
    stage: Stage, family: Family, arguments: ServeArguments, dialect: Dialect, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(arguments, dialect)
    for moment in startup_log.walk(log, arguments):
        if moment == moment_of(stage, family):
            failure_log.print_start_failure(log, asked(stage, family), wording(arguments))
            break
    printed = capsys.readouterr()
    found = triage_text(printed.out + printed.err)
    assert (found.stage, found.family) == (stage, family)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
@pytest.mark.parametrize("arguments", [ONE_GPU, EIGHT_GPUS], ids=["one", "eight"])
@pytest.mark.parametrize("family", SERVING)
def test_a_death_at_a_request_is_read_as_asked(
    family: Family, arguments: ServeArguments, dialect: Dialect, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(arguments, dialect)
    for _ in startup_log.walk(log, arguments):
        pass
    startup_log.print_ready(log, "127.0.0.1", 8000, arguments.model)
    startup_log.print_complete(log)
    request = read_chat({"messages": [{"role": "user", "content": "x"}]}, arguments, 4096)
    failure_log.print_engine_death(log, asked(Stage.SERVING, family), wording(arguments), request)
    found = triage_text(capsys.readouterr().out)
    assert (found.stage, found.family) == (Stage.SERVING, family)


@pytest.mark.parametrize(
    ("family", "message", "root"),
    [
        (Family.NCCL, "no fabric", "RuntimeError: no fabric"),
        (Family.NCCL, "OSError: no fabric {0}", "OSError: no fabric {0}"),
        (Family.CONTEXT_LENGTH, "too long", "too long"),
    ],
)
def test_a_message_takes_the_place_of_the_roots(family: Family, message: str, root: str) -> None:
    assert failure_log.root_of(asked(Stage.SERVING, family, message), wording(ONE_GPU)) == root


def test_an_answer_shows_the_message_without_the_exceptions_name() -> None:
    assert failure_log.without_name("torch.AcceleratorError: CUDA error: x") == "CUDA error: x"
    assert failure_log.without_name("This model's maximum: 5") == "This model's maximum: 5"
