"""Reads what a trial needs from vLLM's /metrics, above all whether the prefix cache is really in force.

Judged by counters: with caching on, the queries grow by the prompt tokens of *every* request; with caching off they are
still exported and stay 0. The label says what was configured, not what happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from repro.probe.answer import Client

METRICS_S = 10.0
# The second name is that of versions before 0.9.
_QUERIES = ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
_HITS = ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")


@dataclass(frozen=True)
class ServerMetrics:
    """Sums over all engines of a server; None where not exported. Queries and hits count tokens."""

    prefix_queries: float | None = None
    prefix_hits: float | None = None
    prompt_tokens: float | None = None
    running: float | None = None
    waiting: float | None = None
    preemptions: float | None = None
    caching_configured: bool | None = None


def fetch_metrics(client: Client) -> ServerMetrics | None:
    """The metrics of a running server, None if it does not tell them."""
    answer = client.get("/metrics", METRICS_S)
    return read_metrics(answer.text) if answer.status == 200 else None


def read_metrics(text: str) -> ServerMetrics | None:
    """Read the text format; None if it is none."""
    sums: dict[str, float] = {}
    configured: bool | None = None
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
                if sample.name == "vllm:cache_config_info":
                    configured = _flag(sample.labels.get("enable_prefix_caching"))
    except ValueError:
        return None
    return ServerMetrics(
        prefix_queries=_first(sums, _QUERIES),
        prefix_hits=_first(sums, _HITS),
        prompt_tokens=sums.get("vllm:prompt_tokens_total"),
        running=sums.get("vllm:num_requests_running"),
        waiting=sums.get("vllm:num_requests_waiting"),
        preemptions=sums.get("vllm:num_preemptions_total"),
        caching_configured=configured,
    )


def prefix_caching_in_force(metrics: ServerMetrics) -> bool | None:
    """True or False by the counters; None before the first request, or where they are not exported."""
    if metrics.prefix_queries is None or not metrics.prompt_tokens:
        return None
    return metrics.prefix_queries > 0


def _first(sums: dict[str, float], names: Iterable[str]) -> float | None:
    return next((sums[name] for name in names if name in sums), None)


def _flag(label: str | None) -> bool | None:
    return {"true": True, "false": False}.get((label or "").lower())
