"""The main job on the real vLLM, from the production command alone: nothing but the command and its request values.

The claims: the failing stage is named with its root line; a threshold lies in the bracket; a launch flag is found among
many; a failing minimal command is a result; launches are those of the rule and below the plan.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import git
import pytest

from repro.domain.trial import Purpose
from tests.real.bed.defects import Defect
from tests.real.bed.launches import Ledger
from tests.real.repro_command import Ran, arguments, repro

Repro = Callable[..., Ran]
THRESHOLD = 300
# What every launch needs here to be quick and to fit a small machine; `cpu-demo` keeps both on both ends.
QUICK = ("--enforce-eager", "--kv-cache-memory-bytes", "67108864")


@pytest.fixture
def run_repro(tmp_path: Path, server_environment: dict[str, str]) -> Repro:
    """Runs repro in a workspace of its own, in a quick server environment that a search then fixes on both ends."""
    folder = tmp_path / "workspace"
    folder.mkdir()

    def run(*words: str | Path, env: dict[str, str] | None = None) -> Ran:
        return repro(words, folder, {**server_environment, **(env or {})})

    return run


def plan_of(run_repro: Repro, words: tuple[str | Path, ...], environment: dict[str, str]) -> dict[str, Any]:
    planned = run_repro("bisect", "--plan", "--json", *words, env=environment)
    assert planned.code == 0, planned.talk
    return planned.document


def check_costs(document: dict[str, Any], plan: dict[str, Any], launched: int) -> None:
    """What the journal says was really launched, is below the plan, and is what the rule demands."""
    trials = document["trials"]
    assert document["launches"] == launched == sum(t["launches"] for t in trials)
    assert launched <= plan["most_launches"]
    launch_names = {v["variable"] for v in plan["single"]} - {"input_tokens", "max_tokens", "concurrency"}
    visited = {json.dumps({k: v for k, v in t["values"].items() if k in launch_names}) for t in trials}
    crashes = sum(t["outcome"] == "failed" for t in trials)
    demanded = {p.value for p in (Purpose.PROOF, Purpose.BASELINE_AGAIN, Purpose.REDUCE)}
    again = sum(t["purpose"] in demanded or (t["fresh"] and t["launched"]) for t in trials)
    begins = 1  # the server that a narrowing needs after the reduction has left it
    assert launched <= len(visited) + crashes + again + begins


def history_of(document: dict[str, Any], folder: Path) -> git.Repo:
    session = Path(document["session"])
    return git.Repo((session if session.is_absolute() else folder / session) / "history.git")


def changed_lines(repository: git.Repo, commit: git.Commit) -> list[str]:
    shown = repository.git.show(commit.hexsha, "--format=", "--unified=0")
    return [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]


def server_processes(workspace: Path) -> list[int]:
    """Everything that writes into a log of this workspace: servers, engines, workers, whatever they call themselves."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            output = (process / "fd" / "1").readlink()
        except OSError:
            continue
        if workspace in output.parents:
            found.append(int(process.name))
    return found


def test_a_failure_in_the_configuration_phase_is_named(
    run_repro: Repro, vllm: Path, tiny_model: Path, ledger: Ledger
) -> None:
    before = ledger.count
    ran = run_repro("run", "--json", "--", vllm, "serve", tiny_model, *QUICK, "--max-model-len", "999999")
    failure = ran.document["failure"]
    assert ran.code == 1
    assert (failure["stage"], failure["family"]) == ("engine_init", "config_invalid")
    assert "max_model_len" in failure["root_line"]
    assert failure["root_line"] in _log_lines(ran, failure["root_line_no"])
    assert ledger.count == before + 1


def test_a_failure_in_the_engine_is_named(run_repro: Repro, vllm: Path, tiny_model: Path, ledger: Ledger) -> None:
    before = ledger.count
    words = ("--enforce-eager", "--kv-cache-memory-bytes", "65536", "--max-model-len", "4096")
    ran = run_repro("run", "--json", "--", vllm, "serve", tiny_model, *words)
    failure = ran.document["failure"]
    assert ran.code == 1
    assert (failure["stage"], failure["family"]) == ("engine_init", "kv_cache_too_small")
    assert "device_recognition" in failure["reached"] or "comm_group" in failure["reached"]
    assert failure["root_line"] in _log_lines(ran, failure["root_line_no"])
    assert ledger.count == before + 1


def _log_lines(ran: Ran, number: int) -> str:
    """The line of that number in the kept log: the root line is what stands there."""
    import gzip

    with gzip.open(ran.document["log"], "rt", newline="\n") as log:
        for at, line in enumerate(log, 1):
            if at == number:
                return line
    return ""


def test_an_input_length_threshold_is_bracketed_to_five_per_cent(
    run_repro: Repro,
    vllm: Path,
    tiny_model: Path,
    planted: Callable[..., dict[str, str]],
    ledger: Ledger,
    tmp_path: Path,
) -> None:
    environment = planted(
        Defect(f"prompt_tokens >= {THRESHOLD}", message="CUDA error: an illegal memory access was encountered")
    )
    words = ("--input-tokens", "700", "--", vllm, "serve", tiny_model, *QUICK, "--max-model-len", "1024")
    plan = plan_of(run_repro, words, environment)
    before = ledger.count
    ran = run_repro("bisect", "--json", *words, env=environment)
    assert ran.code == 0, ran.talk
    document = ran.document
    (finding,) = document["findings"]
    (member,) = finding["variables"]
    assert member["name"] == "input_tokens"
    assert member["passing"] < THRESHOLD <= member["failing"] <= member["passing"] * 1.05
    assert (finding["stage"], finding["family"]) == ("serving", "illegal_memory_access")
    assert finding["proof"][0]["holds"]
    # The server counted the very lengths that the search asked for.
    for trial in document["trials"]:
        if trial["requests"].get("prompt_tokens") is not None:
            assert trial["requests"]["prompt_tokens"] == trial["values"]["input_tokens"]
    check_costs(document, plan, ledger.count - before)
    with history_of(document, tmp_path / "workspace") as repository:
        ladder = [c for c in repository.iter_commits("--all") if "\npurpose: ladder" in str(c.message)]
        assert ladder
        assert all(len(changed_lines(repository, commit)) == 2 for commit in ladder)
        assert "stable/0" in [tag.name for tag in repository.tags]
    assert not server_processes(tmp_path)


def test_a_launch_flag_is_found_among_nine_that_differ(
    run_repro: Repro, vllm: Path, tiny_model: Path, planted: Callable[..., dict[str, str]], ledger: Ledger
) -> None:
    environment = planted(
        Defect("max_num_seqs == 6", at="start", exception="torch.OutOfMemoryError", message="CUDA out of memory.")
    )
    differing = (
        *("--max-model-len", "1024", "--seed", "7", "--max-num-batched-tokens", "2048", "--max-num-seqs", "6"),
        *("--enable-chunked-prefill", "--disable-log-stats", "--generation-config", "vllm", "--block-size", "128"),
        *(
            "--max-logprobs",
            "5",
        ),
    )
    words = ("--", vllm, "serve", tiny_model, *QUICK, *differing)
    plan = plan_of(run_repro, words, environment)
    assert len(plan["single"]) >= 8
    before = ledger.count
    ran = run_repro("bisect", "--json", *words, env=environment)
    assert ran.code == 0, ran.talk
    document = ran.document
    (finding,) = document["findings"]
    (member,) = finding["variables"]
    assert member["name"] == "--max-num-seqs"
    assert (member["passing"], member["failing"]) == (None, "6")
    assert finding["stage"] == "engine_init"
    assert finding["family"] == "oom_gpu"
    check_costs(document, plan, ledger.count - before)


def test_a_failing_minimal_command_is_a_result(
    run_repro: Repro, vllm: Path, damaged_model: Callable[[str], Path], ledger: Ledger
) -> None:
    before = ledger.count
    model = damaged_model("missing_shard")
    words = ("--input-tokens", "200", "--", vllm, "serve", model, *QUICK, "--max-model-len", "1024")
    ran = run_repro("bisect", "--json", *words)
    assert ran.code == 1, ran.talk
    document = ran.document
    assert document["outcome"] == "minimal_fails"
    (finding,) = document["findings"]
    assert (finding["stage"], finding["family"]) == ("weight_access", "weights_missing")
    assert finding["failed"] == {"count": 2, "of": 2}
    assert "as production does" in document["note"]
    assert ledger.count - before == 4


@pytest.mark.real_full
def test_an_input_length_threshold_is_exact_when_asked(
    run_repro: Repro, vllm: Path, tiny_model: Path, planted: Callable[..., dict[str, str]], ledger: Ledger
) -> None:
    environment = planted(Defect(f"prompt_tokens >= {THRESHOLD} and prefix_caching", message="planted"))
    words = (
        *("--input-tokens", "700", "--precision", "exact"),
        *("--", vllm, "serve", tiny_model, *QUICK, "--max-model-len", "1024", "--enable-prefix-caching"),
    )
    plan = plan_of(run_repro, words, environment)
    before = ledger.count
    ran = run_repro("bisect", "--json", *words, env=environment)
    assert ran.code == 0, ran.talk
    members = {m["name"]: m for m in ran.document["findings"][0]["variables"]}
    assert set(members) == {"input_tokens", "prefix_caching"}
    assert (members["input_tokens"]["passing"], members["input_tokens"]["failing"]) == (THRESHOLD - 1, THRESHOLD)
    assert (members["prefix_caching"]["passing"], members["prefix_caching"]["failing"]) == (False, True)
    check_costs(ran.document, plan, ledger.count - before)


@pytest.mark.real_full
@pytest.mark.parametrize("moment", ["launch", "request"])
def test_kill_nine_leaves_no_server_and_the_resumed_search_ends_the_same(
    run_repro: Repro,
    vllm: Path,
    tiny_model: Path,
    planted: Callable[..., dict[str, str]],
    server_environment: dict[str, str],
    ledger: Ledger,
    tmp_path: Path,
    moment: str,
) -> None:
    environment = planted(
        Defect(f"prompt_tokens >= {THRESHOLD}", message="planted"),
        # Requests that are long and pass take a while, so that a kill can meet one.
        Defect("prompt_tokens >= 200 and max_tokens > 1", do="sleep", seconds=0.4),
    )
    words = ("--input-tokens", "700", "--precision", "0.2", "--")
    command = (vllm, "serve", tiny_model, *QUICK, "--max-model-len", "1024")
    workspace = tmp_path / "workspace"
    first = subprocess.Popen(
        arguments("bisect", "--json", *words, *command),
        cwd=workspace,
        env={**server_environment, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(workspace, moment, first)
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    assert server_processes(workspace), "the kill met no server"
    cleaned = run_repro("clean", "--json")
    assert cleaned.code == 0
    assert cleaned.document["servers"][0]["ended"]
    assert not server_processes(workspace)
    ran = run_repro("bisect", "--resume", "--json", env=environment)
    assert ran.code == 0, ran.talk
    (member,) = ran.document["findings"][0]["variables"]
    assert member["name"] == "input_tokens"
    assert member["passing"] < THRESHOLD <= member["failing"] <= member["passing"] * 1.2
    assert not server_processes(workspace)


def _wait_for(workspace: Path, moment: str, process: subprocess.Popen[bytes]) -> None:
    """Until the search is in the middle of its third launch, or of a request to a warm server."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        assert process.poll() is None, "the search ended before the kill"
        journals = list(workspace.glob(".repro/sessions/*/journal.jsonl"))
        events = [json.loads(line) for line in journals[0].read_text().splitlines()] if journals else []
        finished = sum(e["event"] == "finished" for e in events)
        running = bool(events) and events[-1]["event"] == "started"
        if running and finished == 2 and moment == "launch":
            time.sleep(5)  # well into the start-up of the server, which takes a dozen seconds
            return
        if running and finished >= 8 and moment == "request":
            # The bodies are kept right before they are sent, and the trial is not over yet.
            sent = journals[0].parent / "requests" / f"{events[-1]['trial']}.json.gz"
            if sent.exists():
                return
        time.sleep(0.02)
    raise AssertionError("the moment never came")
