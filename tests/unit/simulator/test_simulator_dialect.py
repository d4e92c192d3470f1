"""The versions' logs: what each prints where they differ, and that the triage follows a start of each."""

from __future__ import annotations

import re

import pytest

from repro.domain.stage import Stage
from repro.simulator import failure_log, startup_log
from repro.simulator.arguments import parse
from repro.simulator.dialect import DIALECTS, NEWEST, dialect_of
from repro.simulator.log import Log
from repro.triage.stream import triage_text

EIGHT_GPUS = parse("moonshotai/Kimi-K3 -tp 8".split())
RED_OFF = "\x1b[0;0m"


def start_of(version: str, capsys: pytest.CaptureFixture[str], rust: bool = False) -> str:
    log = Log(EIGHT_GPUS, DIALECTS[version], rust_frontend=rust)
    for _ in startup_log.walk(log, EIGHT_GPUS):
        pass
    startup_log.print_ready(log, "127.0.0.1", 8000, EIGHT_GPUS.model)
    startup_log.print_complete(log)
    return capsys.readouterr().out


@pytest.mark.parametrize("version", DIALECTS)
def test_the_triage_follows_a_start_to_the_end(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = start_of(version, capsys)
    found = triage_text(text)
    assert found.failure() is None
    assert f"version {DIALECTS[version].version}" in text
    assert {item.stage for item in found.reached} >= set(Stage) - {Stage.NONE, Stage.SERVING}


@pytest.mark.parametrize(
    ("version", "present", "absent"),
    [
        (
            "0.9",
            [
                r"^INFO .* vLLM API server version 0\.9\.0\.1\r?$",
                "supports multiple tasks",
                r"^\(VllmWorker rank=7 pid=\d+\) INFO .* rank 7 in world size 8",
                r"Starting vLLM API server on http",
                r"^INFO:     Application startup complete\.$",
            ],
            ["APIServer", "EngineCore", "Resolved architecture", "Supported", "distributed_init_method", RED_OFF],
        ),
        (
            "0.11",
            [
                r"^\x1b\[0;36m\(APIServer pid=\d+\)\x1b\[0;0m INFO .* vLLM API server version 0\.11\.0",
                r"^INFO .* rank 7 in world size 8",
                r"\(Worker_TP0 pid=\d+\)\x1b\[0;0m Loading safetensors checkpoint shards",
                r"Supported_tasks",
                r"Starting vLLM API server 0 on http",
                r"\(APIServer pid=\d+\)\x1b\[0;0m INFO:     Application startup complete\.$",
            ],
            ["(Worker pid", "distributed_init_method", "Maximum concurrency for 1,048,576 tokens per request: 2.50x, "],
        ),
        (
            "0.15",
            [r"EngineCore_DP0 pid", r"version 0\.15\.1", r"^INFO .* distributed_init_method"],
            ["DP group leader"],
        ),
        (
            "0.27",
            [r"^\(EngineCore pid=", r"^\(APIServer pid=\d+\) INFO:     App", r"Starting vLLM server on"],
            [RED_OFF],
        ),
        ("0.32", [r"^INFO:     Application startup complete\.$", r"^\(Worker pid=\d+\) INFO"], [RED_OFF]),
    ],
)
def test_each_version_has_its_own_words(
    version: str, present: list[str], absent: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = start_of(version, capsys)
    assert [pattern for pattern in present if not re.search(pattern, text, re.MULTILINE)] == []
    assert [words for words in absent if words in text] == []


@pytest.mark.parametrize(("version", "orderly"), [("0.9", 0), ("0.11", 0), ("0.15", 0), ("0.27", 12), ("0.32", 12)])
def test_only_newer_versions_tell_of_an_orderly_end(
    version: str, orderly: int, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(EIGHT_GPUS, DIALECTS[version])
    startup_log.print_shutdown(log)
    if version in ("0.9", "0.11", "0.15"):
        failure_log.print_engine_cleanup(log)
    printed = capsys.readouterr().out
    assert printed.count("[shutdown]") == orderly
    assert "FastAPI HTTP server" in printed


@pytest.mark.parametrize("version", DIALECTS)
def test_the_rust_front_end_says_ready_in_its_own_words(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = start_of(version, capsys, rust=True)
    has_one = version in ("0.27", "0.32")
    assert ("OpenAI server is ready to accept requests" in text) is has_one
    assert ("Launching Rust frontend: " in text) is has_one
    assert ("INFO:     " in text) is not has_one
    found = triage_text(text)
    assert found.failure() is None
    assert Stage.API_READY in {item.stage for item in found.reached}


def test_the_environment_chooses_the_version() -> None:
    assert dialect_of({}) is NEWEST
    assert dialect_of({"REPRO_SIMULATOR_VERSION": "0.9"}).version == "0.9.0.1"
    with pytest.raises(ValueError, match=r"VERSION='0\.10': must be one of 0\.9, 0\.11, 0\.15, 0\.27, 0\.32"):
        dialect_of({"REPRO_SIMULATOR_VERSION": "0.10"})
