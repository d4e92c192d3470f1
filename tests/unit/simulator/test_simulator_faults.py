"""The fault file: what it may say, what is refused and in which words, and that chance is repeatable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.simulator.arguments import destination_of, parse
from repro.simulator.condition import Condition, Facts
from repro.simulator.fault_text import MOMENTS, TEXTS, moment_of
from repro.simulator.faults import EMPTY_REQUEST, Fault, FaultFileError, FaultPlan, load

ARGUMENTS = parse("m -tp 8 --kv-cache-dtype fp8".split())
FACTS = Facts({"prefix_caching": True, "nnodes": 1}, lambda flag: ARGUMENTS.value(destination_of(flag) or ""), {})

EXAMPLE = """
seed = 7

[[fault]]                       # the driver is too old for this environment
stage = "device_recognition"
family = "driver_mismatch"
when = "env('IMAGE') == 'cu130'"

[[fault]]                       # the one that is looked for
stage = "serving"
family = "illegal_memory_access"
when = "prefix_caching and input_tokens >= 32768"

[[fault]]                       # one request in twenty
stage = "serving"
family = "http_error"
probability = 0.05
status = 503
"""


def write(folder: Path, text: str, name: str = "faults.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def request_facts(**known: object) -> Facts:
    return Facts({**FACTS.names, **EMPTY_REQUEST, **known}, FACTS.flag, FACTS.env)


def test_an_example_file_is_read(tmp_path: Path) -> None:
    plan = load(write(tmp_path, EXAMPLE), FACTS)
    assert [(f.stage, f.family, f.do) for f in plan.faults] == [
        (Stage.DEVICE_RECOGNITION, Family.DRIVER_MISMATCH, "error"),
        (Stage.SERVING, Family.ILLEGAL_MEMORY_ACCESS, "crash"),
        (Stage.SERVING, Family.HTTP_ERROR, "error"),
    ]
    assert plan.at_moment("device", FACTS) is None
    hit = plan.at_request(1, request_facts(input_tokens=32768))
    assert hit is not None
    assert hit.family is Family.ILLEGAL_MEMORY_ACCESS


def test_json_says_the_same(tmp_path: Path) -> None:
    text = json.dumps({"fault": [{"stage": "serving", "family": "hang", "when": "concurrency >= 8"}]})
    plan = load(write(tmp_path, text, "faults.json"), FACTS)
    assert plan.asks_concurrency
    assert plan.faults[0].do == "hang"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fault = 3", "must be a list of tables"),
        ("fautl = []", "unknown key `fautl`"),
        ("[[fault]]\nfamily = 'nccl'", "fault 1: `stage` is missing"),
        ("[[fault]]\nstage = 'none'\nfamily = 'nccl'", "`stage` is 'none'; it must be one of container_init"),
        ("[[fault]]\nstage = 'serving'\nfamily = 'gremlin'", "`family` is 'gremlin'"),
        ("[[fault]]\nstage = 'api_ready'\nfamily = 'nccl'\ndo = 'empty'", "`do` is 'empty'"),
        ("[[fault]]\nstage = 'serving'\nfamily = 'nccl'\nwhen = 'x > 1'", "unknown name 'x'"),
        ("[[fault]]\nstage = 'serving'\nfamily = 'nccl'\nwhen = \"input_tokens > 'a'\"", "not supported"),
        ("[[fault]]\nstage = 'serving'\nfamily = 'nccl'\nwhen = \"flag('--x') == 1\"", "--x, which is no flag"),
        ("[[fault]]\nstage = 'comm_group'\nfamily = 'nccl'\nwhen = 'stream'", "asks for stream"),
        ("[[fault]]\nstage = 'serving'\nfamily = 'nccl'\nprobability = 2", "between 0 and 1"),
        ("[[fault]]\nstage = 'serving'\nfamily = 'nccl'\ndelay_s = -1", "`delay_s` must be a number"),
        ("[[fault]]\nstage = 'serving'\nfamily = 'nccl'\nwhen = 3", "`when` must be text"),
        ("[[fault]]\nstage = 'serving'\nfamily = 'nccl'\nmessage = 3", "`message` must be text"),
        ("[[fault]", "not valid TOML"),
    ],
)
def test_a_bad_file_is_refused_with_file_and_key(text: str, said: str, tmp_path: Path) -> None:
    file = write(tmp_path, text)
    with pytest.raises(FaultFileError) as refused:
        load(file, FACTS)
    assert str(file) in str(refused.value)
    assert said in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FaultFileError, match=r"absent\.toml: cannot be read"):
        load(tmp_path / "absent.toml", FACTS)


def test_chance_is_repeatable_and_near_its_share() -> None:
    flaky = Fault(Stage.SERVING, Family.HTTP_ERROR, Condition("true"), "error", probability=0.05)

    def hits(seed: int, launch: int) -> list[int]:
        plan = FaultPlan((flaky,), seed, launch)
        return [n for n in range(1, 2001) if plan.at_request(n, request_facts())]

    assert hits(1, 0) == hits(1, 0)
    assert hits(1, 0) != hits(2, 0)
    assert hits(1, 0) != hits(1, 1)
    assert 60 <= len(hits(1, 0)) <= 140


def test_a_launch_counter_counts(tmp_path: Path) -> None:
    file = write(tmp_path, 'launch_counter = "count"\n')
    assert [load(file, FACTS).launch for _ in range(3)] == [1, 2, 3]
    (tmp_path / "count").write_text("many", encoding="utf-8")
    with pytest.raises(FaultFileError, match="launch_counter"):
        load(file, FACTS)


def test_every_family_has_a_moment_at_every_stage_of_a_start() -> None:
    stages = [stage for stage in Stage if stage not in (Stage.NONE, Stage.SERVING)]
    assert all(moment_of(stage, family) in MOMENTS for stage in stages for family in TEXTS)
