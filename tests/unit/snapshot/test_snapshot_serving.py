"""Load before the failure, from log lines of several versions and from a Prometheus server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context, Series
from repro.snapshot.log_source import FileLog
from repro.snapshot.prometheus import QUERIES
from repro.snapshot.serving import MOST_POINTS, ServingCollector
from tests.fakes.clock import FakeClock

STATISTICS = (
    "(APIServer pid=1) INFO 12-01 13:46:02 [loggers.py:335] Engine 001: Avg prompt throughput: 2310.5 tokens/s, Avg "
    "generation throughput: 61.0 tokens/s, Running: 3 reqs, Waiting: 59 reqs, Preemptions: 18, GPU KV cache usage: "
    "97.5%, Prefix cache hit rate: 81.5%, MM cache hit rate: 0.0%\n"
)
OLD = (
    "INFO 05-16 03:44:43 metrics.py:455] Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, "
    "Running: 1 reqs, Swapped: 0 reqs, Pending: 2 reqs, GPU KV cache usage: 0.4%, CPU KV cache usage: 0.0%.\n"
)
ACCESS = 'INFO:     127.0.0.1:51976 - "POST /v1/chat/completions HTTP/1.1" {} OK\n'
RECEIVED = (
    "INFO 05-16 03:44:43 logger.py:39] Received request {}: prompt: None, params: SamplingParams(n=1), "
    "prompt_token_ids: [{}], lora_request: None.\n"
)
DUMP = (
    "(EngineCore pid=24) ERROR 12-01 13:38:58 [dump_input.py:79] Dumping scheduler output for model execution: "
    "SchedulerOutput(scheduled_new_reqs=[NewRequestData(req_id=cmpl-85,prompt_token_ids_len=60123,"
    "prefill_token_ids_len=None,mm_features=[])], x=1)\n"
)


def collect(tmp_path: Path, text: str) -> dict[str, Fact]:
    (tmp_path / "log").write_text(text)
    return dict(ServingCollector().collect(Context(Redactor(), log=FileLog(tmp_path / "log"))))


def test_the_statistics_become_a_series(tmp_path: Path) -> None:
    new, old = collect(tmp_path, STATISTICS + "other\n" + OLD)["series"].value
    assert new == {
        "time": "12-01 13:46:02",
        "engine": 1,
        "prompt_throughput": 2310.5,
        "generation_throughput": 61.0,
        "running": 3,
        "waiting": 59,
        "preemptions": 18,
        "kv_usage": 0.975,
        "prefix_hit_rate": 0.815,
    }
    assert (old["waiting"], old["kv_usage"], old["engine"]) == (2, 0.004, 0)
    assert "prefix_hit_rate" not in old


def test_requests_are_counted_and_the_longest_prompts_named(tmp_path: Path) -> None:
    text = "".join(RECEIVED.format(f"r{n}", ", ".join(["7"] * n)) for n in (3, 9, 1))
    text += ACCESS.format(200) * 3 + ACCESS.format(500) + 'INFO: 1 - "GET /health HTTP/1.1" 200 OK\n' + DUMP
    facts = collect(tmp_path, text)
    assert facts["requests"].value == {"answered": {"200": 3, "500": 1}, "served": 3, "received": 3}
    longest = facts["longest_prompts"].value
    assert [(each["id"], each["tokens"]) for each in longest] == [("cmpl-85", 60123), ("r9", 9), ("r3", 3), ("r1", 1)]
    assert longest[1]["line_no"] == 2
    assert facts["unfinished"].value == [{"id": "cmpl-85", "tokens": 60123}]


def test_a_prompt_of_many_tokens_is_counted_whole(tmp_path: Path) -> None:
    facts = collect(tmp_path, RECEIVED.format("long", ", ".join(["123456"] * 400_000)))
    assert facts["longest_prompts"].value[0]["tokens"] == 400_000


def test_only_the_last_points_are_kept(tmp_path: Path) -> None:
    lines = [STATISTICS.replace("Running: 3", f"Running: {n}") for n in range(MOST_POINTS + 5)]
    assert [p["running"] for p in collect(tmp_path, "".join(lines))["series"].value][:2] == [5, 6]


def test_a_log_without_any_of_it_says_what_would_print_it(tmp_path: Path) -> None:
    facts = collect(tmp_path, "nothing\n")
    assert "idle" in facts["series"].reason
    assert "--enable-log-requests" in facts["longest_prompts"].reason
    assert "--metrics" in facts["prometheus"].reason


def answering(url: str, deadline_s: float) -> str:
    parts = urlsplit(url)
    asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert parts.path == "/api/v1/query_range"
    assert float(asked["end"]) - float(asked["start"]) == 1800.0
    if asked["query"] == QUERIES["running"]:
        values: list[Any] = [[1.0, "3"], [6.0, "4"], [11.0, "NaN"]]
        return json.dumps({"status": "success", "data": {"result": [{"metric": {}, "values": values}]}})
    return json.dumps({"status": "success", "data": {"result": []}})


def prometheus(fetch: Any) -> Fact:
    context = Context(Redactor(), fetch=fetch, series=Series("http://me:pass-word@prom:9090/", 1800.0))
    return ServingCollector(FakeClock()).collect(context)["prometheus"]


def test_the_same_series_from_prometheus() -> None:
    fact = prometheus(answering)
    assert fact.value["series"]["running"] == [[1.0, 3.0], [6.0, 4.0]]
    assert fact.value["series"]["waiting"] == []
    assert fact.value["step"] == 5
    assert "pass-word" not in repr(fact)


@pytest.mark.parametrize("text", ['{"status": "error", "error": "too many"}', "<html>", "[]", '{"status": "success"}'])
def test_another_server_is_no_prometheus(text: str) -> None:
    fact = prometheus(lambda *_: text)
    assert "Prometheus" in fact.reason
    assert "pass-word" not in fact.reason
