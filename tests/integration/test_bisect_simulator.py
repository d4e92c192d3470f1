"""`repro bisect` from a command line to its end: answers, exit codes, plan, budget, history."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli_bed import LONG_PROMPTS, MANY_SEQUENCES, Bed, Done

FOREIGN = {
    "stage": "engine_init",
    "family": "kernel_compile",
    "when": "flag('--kv-cache-dtype') == 'fp8' and flag('--max-num-seqs') != 64",
}


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bed, Done, Done]]:
    """A search over three variables: (bed, its plan, its end). Read only."""
    bed = Bed(tmp_path_factory.mktemp("searched"))
    bed.faults(LONG_PROMPTS)
    flags = ("--kv-cache-dtype", "fp8", "--max-num-seqs", "64")
    words = bed.search("--input-tokens", "1000", "--json", flags=flags)
    planned = bed.repro(*words[:1], "--plan", *words[1:])
    assert list((bed.folder / ".repro").iterdir()) == [], "a plan starts and writes nothing"
    done = bed.repro(*words)
    yield bed, planned, done
    bed.close()


def trials(document: dict[str, Any], purpose: str) -> list[dict[str, Any]]:
    return [t for t in document["trials"] if t["purpose"] == purpose]


def test_a_threshold_is_found_and_proven(searched: tuple[Bed, Done, Done]) -> None:
    _, _, done = searched
    assert done.code == 0, done.stderr
    document = done.json
    assert document["outcome"] == "found"
    assert [(t["stage"], t["family"]) for t in document["target"]] == [("serving", "illegal_memory_access")]
    (finding,) = document["findings"]
    (variable,) = finding["variables"]
    assert (variable["name"], variable["kind"]) == ("input_tokens", "request")
    assert variable["passing"] < 300 <= variable["failing"] <= variable["passing"] * 1.2
    (pair,) = finding["proof"]
    assert (pair["variable"], pair["masked"], pair["holds"]) == ("input_tokens", False, True)


def test_the_document_has_the_shape_that_scripts_rely_on(searched: tuple[Bed, Done, Done]) -> None:
    bed, _, done = searched
    document = done.json
    assert (document["schema"], document["version"]) == ("repro/bisect", 1)
    shape = {"outcome", "target", "findings", "set_aside", "trials", "launches", "requests", "seconds", "gpu_hours"}
    assert shape | {"session"} <= set(document)
    assert document["session"] == str(bed.session)
    assert document["launches"] == sum(t["launches"] for t in document["trials"])
    assert document["gpu_hours"] == 0
    numbers = {t["n"] for t in document["trials"]}
    for number, trial in enumerate(document["trials"], 1):
        assert {"n", "parent", "changed", "outcome", "stage", "family", "launched", "seconds"} <= set(trial)
        assert trial["n"] == number
        assert trial["parent"] is None or 1 <= trial["parent"] < number
        assert len(trial["changed"]) <= 1
        assert (trial["outcome"] == "failed") == (trial["stage"] is not None)
    (finding,) = document["findings"]
    assert {finding["failed"]["count"], finding["failed"]["of"]} == {finding["failed"]["of"]}
    assert {finding["proof"][0]["passing_trial"], finding["proof"][0]["failing_trial"]} <= numbers


def test_only_json_is_on_stdout_and_all_talk_on_stderr(searched: tuple[Bed, Done, Done]) -> None:
    _, _, done = searched
    json.loads(done.stdout)
    assert "session " in done.stderr
    assert "weight_access done after" in done.stderr
    assert "\x1b" not in done.stderr, "no terminal, no escapes"


def test_the_plan_names_a_bound_that_holds(searched: tuple[Bed, Done, Done]) -> None:
    _, planned, done = searched
    assert planned.code == 0, planned.stderr
    plan = planned.json
    assert done.json["launches"] <= plan["most_launches"]
    assert len(done.json["trials"]) <= plan["most_trials"]
    assert {v["variable"] for v in plan["single"]} == {"input_tokens", "--kv-cache-dtype", "--max-num-seqs"}
    assert "--max-num-seqs 64" in plan["production"]
    assert "--max-num-seqs" not in plan["minimal"]


def test_the_plan_for_people_shows_both_commands_and_the_price(bed: Bed) -> None:
    words = bed.search("--input-tokens", "60000", "--launch-minutes", "10", flags=("--max-num-seqs", "64"))
    done = bed.repro(*words[:1], "--plan", *words[1:])
    assert done.code == 0, done.stderr
    assert re.search(r"^minimal: .*--no-enable-prefix-caching$", done.stdout, re.MULTILINE)
    assert re.search(r"^input_tokens +request +64 +60,000 +\d+$", done.stdout, re.MULTILINE)
    assert re.search(r"At worst: \d+ launches and \d+ trials, .*GPU-hours on 1 GPU", done.stdout)


def git(history: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(history), *words], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout


def references(history: Path) -> dict[str, str]:
    lines = git(history, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    return dict(line.split() for line in lines)


def test_the_history_reads_as_one_variable_a_commit(searched: tuple[Bed, Done, Done]) -> None:
    bed, _, done = searched
    history = bed.session / "history.git"
    named = references(history)
    assert {"refs/tags/stable/0", "refs/tags/target", "refs/heads/main"} <= set(named)
    for trial in done.json["trials"]:
        ref = f"refs/heads/trials/{trial['n']:03d}-{trial['outcome']}"
        assert ref in named
        shown = git(history, "show", "--format=%s", "--unified=0", ref)
        changes = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        added = [line[1:].split(" = ")[0] for line in changes if line.startswith("+")]
        if trial["parent"] is not None:
            assert added == trial["changed"], shown
    (ladder,) = trials(done.json, "ladder")
    shown = git(history, "show", "--format=%s", "--unified=0", f"trials/{ladder['n']:03d}-failed")
    assert "-input_tokens = 64\n+input_tokens = 1000\n" in shown
    assert "stable/0 + input_tokens: failed serving/illegal_memory_access" in shown
    assert "passed 5 of 5" in git(history, "tag", "-n", "-l", "stable/0")


def test_a_deleted_history_is_made_again_from_the_journal_without_a_launch(
    searched: tuple[Bed, Done, Done], tmp_path: Path
) -> None:
    bed = Bed(tmp_path)
    shutil.copytree(searched[0].folder / ".repro", tmp_path / ".repro", dirs_exist_ok=True)
    before = references(bed.session / "history.git")
    shutil.rmtree(bed.session / "history.git")
    again = bed.resume()
    assert again.code == 0, again.stderr
    assert references(bed.session / "history.git") == before
    assert again.json["findings"] == searched[2].json["findings"]
    assert again.json["trials"] == searched[2].json["trials"]
    assert "done after" not in again.stderr, "nothing was launched"


def test_a_launch_flag_is_found_with_a_foreign_error_on_the_way(bed: Bed) -> None:
    """Two flags: the first fails otherwise on its own and is set aside; the second is the cause."""
    bed.faults(FOREIGN, MANY_SEQUENCES)
    done = bed.repro(*bed.search("--json", flags=("--kv-cache-dtype", "fp8", "--max-num-seqs", "64")))
    assert done.code == 0, done.stderr
    document = done.json
    assert [v["name"] for v in document["findings"][0]["variables"]] == ["--max-num-seqs"]
    assert [(s["variable"], s["family"]) for s in document["set_aside"]] == [("--kv-cache-dtype", "kernel_compile")]
    assert len(trials(document, "baseline again")) == 1
    assert bed.servers() == []


def test_a_failing_minimal_command_is_a_result(bed: Bed) -> None:
    bed.faults({"stage": "weight_access", "family": "weights_missing"})
    done = bed.repro(*bed.search("--json", flags=("--max-num-seqs", "64")))
    assert done.code == 1, done.stderr
    assert done.json["outcome"] == "minimal_fails"
    assert done.json["findings"][0]["family"] == "weights_missing"
    assert done.json["launches"] == 4


def test_production_that_passes_is_not_reproduced(bed: Bed) -> None:
    done = bed.repro(*bed.search("--json", flags=("--max-num-seqs", "64")))
    assert done.code == 11, done.stderr
    assert (done.json["outcome"], done.json["launches"]) == ("not_reproduced", 1)


def test_production_that_fails_otherwise_than_claimed_ends_at_once(bed: Bed) -> None:
    bed.faults(MANY_SEQUENCES)
    done = bed.repro(*bed.search("--json", "--target", "comm_group/nccl", flags=("--max-num-seqs", "64")))
    assert done.code == 11, done.stderr
    assert done.json["outcome"] == "end_not_as_claimed"
    assert "oom_gpu" in done.json["note"]


def test_a_budget_gives_a_weaker_answer_and_a_larger_one_the_finding(bed: Bed) -> None:
    bed.faults(MANY_SEQUENCES)
    weaker = bed.repro(*bed.search("--json", "--budget-launches", "3", flags=("--max-num-seqs", "64")))
    assert weaker.code == 10, weaker.stderr
    assert weaker.json["outcome"] == "inconclusive"
    assert weaker.json["launches"] == 3
    assert weaker.json["still_possible"] == ["--max-num-seqs"]
    found = bed.resume()
    assert found.code == 0, found.stderr
    assert found.json["findings"][0]["proof"][0]["holds"]
    assert found.json["trials"][: len(weaker.json["trials"])] == weaker.json["trials"]


def test_the_answer_for_people_says_what_where_and_what_next(bed: Bed) -> None:
    bed.faults(MANY_SEQUENCES)
    done = bed.repro(*bed.search(flags=("--max-num-seqs", "64")))
    assert done.code == 0, done.stderr
    assert "FOUND" in done.stdout
    assert "--max-num-seqs" in done.stdout
    assert "CUDA out of memory" in done.stdout
    assert re.search(r"log:  \.repro/sessions/[\w-]+/logs/server-\d+\.log\.gz, line \d+", done.stdout)
    assert re.search(r"proof for --max-num-seqs: trial \d+ passes, trial \d+ fails: holds", done.stdout)
    assert f"repro bundle {bed.session.name}" in done.stdout
    assert "history.git log" in done.stdout
