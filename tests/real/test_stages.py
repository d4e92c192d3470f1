"""Every start-up stage and serving: two different real failures each, named by one `repro run` with the process engine.

The failures are those of the bed's recorder, so the labels were set before and by other means than the tool that is
judged here. The two of the engine are in test_main_job.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.bed.case import Case
from tests.real.bed.cases_engine import DEVICE_AND_GROUP, ENGINE, SERVING
from tests.real.bed.cases_settings import CONFIGURATION, SETTINGS
from tests.real.bed.damaged import DAMAGES
from tests.real.bed.launches import Ledger
from tests.real.repro_command import repro

ALL = {case.slug: case for case in (*CONFIGURATION, *SETTINGS, *ENGINE, *DEVICE_AND_GROUP, *SERVING)}
BROKEN_TORCH = Case(
    *("torch-broken", "container_init", "import_error", "ImportError: libtorch_cpu.so"),
    site={"torch/__init__.py": "raise ImportError('libtorch_cpu.so: cannot open shared object file')\n"},
)
CHOSEN = (
    *("module-missing", "no-platform", "tp2-one-numa-node", "shard-missing", "config-not-json"),
    *("gloo-interface-unknown", "peer-never-comes", "chat-template-missing", "tls-files-missing"),
    *("planted-prompt-of-300", "planted-exit-in-step"),
)
# What makes a serving failure happen, as production's request values.
REQUESTS = {"planted-prompt-of-300": ("--input-tokens", "300"), "planted-exit-in-step": ("--max-tokens", "16")}


def chosen() -> list[Case]:
    return [*(ALL[slug] for slug in CHOSEN if slug in ALL), BROKEN_TORCH]


def test_every_chosen_failure_exists() -> None:
    assert len(chosen()) == len(CHOSEN) + 1
    stages = [case.stage for case in chosen()]
    for stage in ("container_init", "device_recognition", "weight_access", "comm_group", "api_ready", "serving"):
        assert stages.count(stage) == 2, stage


@pytest.mark.real_full
@pytest.mark.parametrize("case", chosen(), ids=lambda case: case.slug)
def test_a_real_failure_is_named(
    case: Case,
    vllm: Path,
    tiny_model: Path,
    damaged_model: Callable[[str], Path],
    planted: Callable[..., dict[str, str]],
    server_environment: dict[str, str],
    ledger: Ledger,
    tmp_path: Path,
) -> None:
    before = ledger.count
    model = tiny_model if case.model == "tiny" else damaged_model(case.model) if case.model in DAMAGES else case.model
    environment = {**server_environment, **case.env}
    if case.defects:
        environment |= planted(*case.defects)
    if case.site:
        for name, text in case.site.items():
            (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "site" / name).write_text(text)
        environment["PYTHONPATH"] = str(tmp_path / "site")
    flags = ("--max-model-len", "1024", "--enforce-eager", "--kv-cache-memory-bytes", "67108864", *case.args)
    folder = tmp_path / "workspace"
    folder.mkdir()
    words = ("run", "--json", *REQUESTS.get(case.slug, ()), "--", vllm, "serve", model, *flags)
    ran = repro(words, folder, {name: value for name, value in environment.items() if value})
    assert ran.code == 1, ran.talk
    failure = ran.document["failure"]
    fair = {f"{case.stage}/{case.family}", *case.alt}
    assert f"{failure['stage']}/{failure['family']}" in fair, failure
    assert ledger.count == before + 1
