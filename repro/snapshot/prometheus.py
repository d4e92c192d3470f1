"""vLLM's load and cache over time from a Prometheus server's range API (`/api/v1/query_range`).

The same quantities as in the statistics lines of the log, under the same names, so that both can be read side by side.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from repro.snapshot.collector import Fetch, Series

_DEADLINE_S = 10.0
_MOST_POINTS = 720
_LEAST_STEP_S = 5
QUERIES: Mapping[str, str] = {
    "running": "sum(vllm:num_requests_running)",
    "waiting": "sum(vllm:num_requests_waiting)",
    "kv_usage": "max(vllm:kv_cache_usage_perc)",
    "prefix_hit_rate": "sum(rate(vllm:prefix_cache_hits_total[1m])) / sum(rate(vllm:prefix_cache_queries_total[1m]))",
    "prompt_throughput": "sum(rate(vllm:prompt_tokens_total[1m]))",
    "generation_throughput": "sum(rate(vllm:generation_tokens_total[1m]))",
    "preemptions": "sum(increase(vllm:num_preemptions_total[1m]))",
    "served": "sum(increase(vllm:request_success_total[1m]))",
}


def read_series(fetch: Fetch, series: Series, now: float) -> dict[str, Any]:
    """`{begin, end, step, series: {name: [[unix seconds, value], …]}}`; a name without data has an empty list.

    Raises LookupError when the server does not answer as Prometheus does.
    """
    begin = now - series.since_s
    step = max(_LEAST_STEP_S, math.ceil(series.since_s / _MOST_POINTS))
    found = {name: _range(fetch, series.url, query, begin, now, step) for name, query in QUERIES.items()}
    return {"begin": begin, "end": now, "step": step, "series": found}


def _range(fetch: Fetch, url: str, query: str, begin: float, end: float, step: int) -> list[list[float]]:
    asked = urlencode({"query": query, "start": f"{begin:.3f}", "end": f"{end:.3f}", "step": step})
    text = fetch(f"{url.rstrip('/')}/api/v1/query_range?{asked}", _DEADLINE_S)
    try:
        document = json.loads(text)
        if document["status"] != "success":
            raise LookupError(f"Prometheus refuses: {document.get('error', document['status'])}")
        results = document["data"]["result"]
        return [[float(at), float(value)] for at, value in (results[0]["values"] if results else ()) if _told(value)]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LookupError(f"{url} does not answer as Prometheus does: {text[:100]!r}") from error


def _told(value: str) -> bool:
    """Not 0/0: a rate of nothing."""
    return value not in ("NaN", "+Inf", "-Inf")
