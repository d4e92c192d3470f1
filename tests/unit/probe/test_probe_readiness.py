from __future__ import annotations

import json
from typing import Any

from repro.probe.answer import HttpAnswer, NetworkFault
from repro.probe.metrics import fetch_metrics, prefix_caching_in_force, read_metrics
from repro.probe.readiness import CompletionReadiness, Served

MODELS = HttpAnswer(200, json.dumps({"data": [{"id": "k3", "max_model_len": 1024}]}))
OK = HttpAnswer(200, "{}")


def ready(scripted: Any, answers: dict[str, HttpAnswer | list[HttpAnswer]]) -> CompletionReadiness:
    def reply(path: str, body: dict[str, Any] | None) -> HttpAnswer:
        answer = answers.get(path, HttpAnswer(404, "{}"))
        return answer.pop(0) if isinstance(answer, list) else answer

    return CompletionReadiness(lambda _url: scripted(reply))


def test_ready_tells_model_and_length(scripted: Any) -> None:
    readiness = ready(scripted, {"/health": OK, "/v1/models": MODELS, "/v1/completions": OK})
    assert readiness.check("http://x") is None
    assert readiness.served == Served("k3", 1024)
    assert readiness.requests == 1


def test_chat_is_tried_where_completions_are_not_served(scripted: Any) -> None:
    readiness = ready(scripted, {"/health": OK, "/v1/models": MODELS, "/v1/chat/completions": OK})
    assert readiness.check("http://x") is None
    assert readiness.requests == 2


def test_each_reason_why_not_yet(scripted: Any) -> None:
    refused = HttpAnswer(None, fault=NetworkFault.REFUSED, detail="connection refused")
    for answers, reason in (
        ({"/health": refused}, "refused"),
        ({"/health": HttpAnswer(503)}, "HTTP 503"),
        ({"/health": OK, "/v1/models": HttpAnswer(200, '{"data": []}')}, "lists no model"),
        ({"/health": OK, "/v1/models": HttpAnswer(200, "no json")}, "lists no model"),
        ({"/health": OK, "/v1/models": MODELS, "/v1/completions": refused}, "first completion: refused"),
    ):
        told = ready(scripted, dict(answers)).check("http://x")
        assert told is not None
        assert reason in told


def test_a_server_error_is_looked_at_again_and_then_left_to_the_trial(scripted: Any) -> None:
    broken = HttpAnswer(500, "boom")
    readiness = ready(scripted, {"/health": OK, "/v1/models": MODELS, "/v1/completions": broken})
    assert "500" in (readiness.check("http://x") or "")
    assert "500" in (readiness.check("http://x") or "")
    assert readiness.check("http://x") is None
    assert readiness.served is not None
    assert "boom" in readiness.served.first_answer
    mended = ready(scripted, {"/health": OK, "/v1/models": MODELS, "/v1/completions": [broken, OK]})
    assert mended.check("http://x") is not None
    assert mended.check("http://x") is None
    assert mended.served == Served("k3", 1024)


def test_a_first_completion_that_hangs_is_left_to_the_trial(scripted: Any) -> None:
    hangs = HttpAnswer(None, fault=NetworkFault.TIMEOUT)
    readiness = ready(scripted, {"/health": OK, "/v1/models": MODELS, "/v1/completions": hangs})
    assert readiness.check("http://x") is None
    assert readiness.served == Served("k3", 1024, "timeout")


METRICS = """# HELP vllm:prefix_cache_queries_total Prefix cache queries.
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} %d
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 1.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 128.0
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} %d
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 2.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 18.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="128",enable_prefix_caching="True"} 1.0
"""


def test_metrics_are_summed_over_engines(scripted: Any) -> None:
    metrics = fetch_metrics(scripted(lambda _path, _body: HttpAnswer(200, METRICS % (299, 300))))
    assert metrics is not None
    assert (metrics.prefix_queries, metrics.prefix_hits, metrics.running, metrics.preemptions) == (300, 128, 2, 18)
    assert (metrics.waiting, metrics.caching_configured) == (None, True)
    assert prefix_caching_in_force(metrics) is True
    assert fetch_metrics(scripted(lambda _path, _body: HttpAnswer(404))) is None


def test_counters_that_stay_zero_mean_off_and_no_request_means_unknown() -> None:
    off = "vllm:prefix_cache_queries_total 0\nvllm:prompt_tokens_total %d\n"
    served, fresh, silent = read_metrics(off % 7), read_metrics(off % 0), read_metrics("")
    assert served is not None
    assert fresh is not None
    assert silent is not None
    assert prefix_caching_in_force(served) is False
    assert prefix_caching_in_force(fresh) is None
    assert prefix_caching_in_force(silent) is None
    assert read_metrics("<html>{no} metrics") is None
