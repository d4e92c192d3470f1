"""What is in force: from a real start-up log, and from a server that still answers."""

from __future__ import annotations

import json
from pathlib import Path

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context, Fetch
from repro.snapshot.configuration import ConfigurationCollector, engine_config, server_addresses
from repro.snapshot.log_source import FileLog
from tests.fakes.docker import container_facts

LOG = Path(__file__).parents[1] / "triage/logs/healthy-refused-requests.log"
METRICS = (
    'vllm:cache_config_info{block_size="128",enable_prefix_caching="True",engine="0",gpu_memory_utilization="0.92",'
    'kv_cache_memory_bytes="67108864",prefix_cache_retention_interval="None"} 1.0\n'
)


def collect(log: Path | None = LOG, fetch: Fetch | None = None) -> dict[str, Fact]:
    container = container_facts("1" * 64, "prod", ("vllm", "serve", "m", "--port", "8123"))
    container["NetworkSettings"] = {"Ports": {"8123/tcp": [{"HostPort": "9000"}]}, "Networks": {}}
    source = FileLog(log) if log else None
    context = Context(Redactor(), log=source, fetch=fetch, container=container if fetch else None)
    return dict(ConfigurationCollector().collect(context))


def test_a_start_up_log_tells_what_was_given_and_what_holds() -> None:
    facts = collect()
    assert set(facts) == set(ConfigurationCollector.fields)
    assert facts["arguments"].value["--max-model-len"] == "1024"
    assert facts["arguments"].value["model"] == "/models/tiny"
    assert facts["engine"].value["enable_prefix_caching"] is True
    assert facts["engine_version"].value == "0.32.0"
    assert facts["derived"].value["kv_cache_tokens"] == "131072"
    defaults = facts["defaults"].value
    assert defaults["--enable-prefix-caching"] is True
    assert defaults["--tensor-parallel-size"] == 1
    assert "--max-model-len" not in defaults, "it was given"
    assert facts["cache"].reason == "no server is asked in this capture"


def test_a_server_that_answers_tells_more() -> None:
    asked: list[str] = []

    def fetch(url: str, deadline_s: float) -> str:
        asked.append(url)
        return json.dumps({"version": "0.32.0"}) if url.endswith("/version") else METRICS

    facts = collect(fetch=fetch)
    assert asked == ["http://127.0.0.1:9000/version", "http://127.0.0.1:9000/metrics"]
    assert facts["server_version"].value == "0.32.0"
    assert facts["cache"].value["block_size"] == "128"
    assert "engine" not in facts["cache"].value
    assert facts["defaults"].value["--gpu-memory-utilization"] == 0.92
    assert "--kv-cache-memory-bytes" not in facts["defaults"].value


def test_a_server_that_is_gone_costs_its_own_facts() -> None:
    def fetch(url: str, deadline_s: float) -> str:
        raise LookupError("http://127.0.0.1:9000 answers refused")

    facts = collect(fetch=fetch)
    assert "refused" in facts["server_version"].reason
    assert facts["engine"].known


def test_the_last_launch_of_a_log_counts(tmp_path: Path) -> None:
    first = LOG.read_text()
    (tmp_path / "log").write_text(first + first.replace("'max_model_len': 1024", "'max_model_len': 2048"))
    assert collect(tmp_path / "log")["arguments"].value["--max-model-len"] == "2048"


def test_without_a_log_every_field_says_so(tmp_path: Path) -> None:
    assert collect(None)["arguments"].reason == "no log was named"
    assert "not there" in collect(tmp_path / "none")["arguments"].reason
    (tmp_path / "short").write_text("begun later\n")
    facts = collect(tmp_path / "short")
    assert "may have begun earlier" in facts["engine"].reason
    assert not facts["defaults"].known


def test_objects_of_the_engines_line_stay_text() -> None:
    found = engine_config("a=1, b=Config(x=[1, 2], y='p, q'), c='it, all', d=None, e={'f': 2}, dtype=torch.bfloat16")
    assert found == {
        "a": 1,
        "b": "Config(x=[1, 2], y='p, q')",
        "c": "it, all",
        "d": None,
        "e": "{'f': 2}",
        "dtype": "bfloat16",
    }


def test_a_container_is_asked_at_its_own_address_too() -> None:
    container = container_facts("1" * 64, "prod", ("vllm", "serve", "m"))
    container["NetworkSettings"] = {"Ports": {"8000/tcp": None}, "Networks": {"bridge": {"IPAddress": "172.17.0.2"}}}
    assert server_addresses(Context(Redactor(), container=container)) == ["http://172.17.0.2:8000"]
