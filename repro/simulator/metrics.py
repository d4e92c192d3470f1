"""The `/metrics` page: vLLM 0.32's names, types and labels as Prometheus text. Nothing is ever preempted here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from repro.simulator.engine import Engine


def page(engine: Engine, model: str, prefix_caching: bool, started: float) -> str:
    """The whole page. `started` is the start in seconds since the epoch, for the `_created` twins of the counters."""
    counters = engine.counters
    labels = {"engine": "0", "model_name": model}
    computed = counters.prompt_tokens - counters.cache_hits
    gauges: list[tuple[str, dict[str, str], float]] = [
        ("num_requests_running", {}, counters.running),
        ("num_requests_waiting", {}, counters.waiting),
        ("num_requests_waiting_by_reason", {"reason": "capacity"}, counters.waiting),
        ("num_requests_waiting_by_reason", {"reason": "deferred"}, 0),
        ("kv_cache_usage_perc", {}, min(counters.running_tokens / max(engine.cache_tokens, 1), 1.0)),
    ]
    totals: list[tuple[str, dict[str, str], float]] = [
        ("prefix_cache_queries", {}, counters.cache_queries),
        ("prefix_cache_hits", {}, counters.cache_hits),
        ("num_preemptions", {}, 0),
        ("prompt_tokens", {}, counters.prompt_tokens),
        ("prompt_tokens_by_source", {"source": "local_compute"}, computed),
        ("prompt_tokens_by_source", {"source": "local_cache_hit"}, counters.cache_hits),
        ("prompt_tokens_by_source", {"source": "external_kv_transfer"}, 0),
        ("prompt_tokens_cached", {}, counters.cache_hits),
        ("generation_tokens", {}, counters.generation_tokens),
        *(("request_success", {"finished_reason": r}, n) for r, n in counters.finished.items()),
    ]
    info = {
        "block_size": engine.block_size,
        "cache_dtype": "auto",
        "enable_prefix_caching": prefix_caching,
        "hash_block_size": engine.block_size,
        "num_gpu_blocks": engine.cache_tokens // engine.block_size,
    }
    lines = [
        *_family(gauges, labels, "gauge", ""),
        *_family(totals, labels, "counter", "_total"),
        *_family([(name, extra, started) for name, extra, _ in totals], labels, "gauge", "_created"),
        "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig",
        "# TYPE vllm:cache_config_info gauge",
        f"vllm:cache_config_info{_labels({'engine': '0', **info})} 1.0",
    ]
    return "\n".join(lines) + "\n"


def _family(
    samples: list[tuple[str, dict[str, str], float]], labels: dict[str, str], kind: str, suffix: str
) -> Iterator[str]:
    named = ""
    for name, extra, value in samples:
        if name != named:
            yield f"# HELP vllm:{name}{suffix} As in vLLM."
            yield f"# TYPE vllm:{name}{suffix} {kind}"
            named = name
        yield f"vllm:{name}{suffix}{_labels({**labels, **extra})} {float(value)!r}"


def _labels(pairs: dict[str, Any]) -> str:
    escaped = ((k, str(v).replace("\\", "\\\\").replace('"', '\\"')) for k, v in pairs.items())
    return "{" + ",".join(f'{k}="{v}"' for k, v in escaped) + "}"
