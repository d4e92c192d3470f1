"""`repro run --diagnose` against the simulator: what the extra output shows, and that it stays apart from proofs."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from tests.integration.cli_bed import Bed, Done

GROUP = {"stage": "comm_group", "family": "nccl"}
FLAGS = ("--tensor-parallel-size", "2")


def run(bed: Bed, *options: str) -> Done:
    return bed.repro("run", "--recipe", "bed.toml", *options, "--", *bed.vllm(*FLAGS))


def test_the_offered_command_finds_the_cause_under_nccls_sentence(bed: Bed) -> None:
    bed.faults(GROUP)
    first = run(bed, "--json").json
    assert (first["failure"]["family"], first["diagnostic"]) == ("nccl", None)
    name, *words = shlex.split(first["next"][-1])
    assert name == "repro"
    done = bed.repro(words[0], "--json", *words[1:])
    assert done.code == 1, done.stderr
    told = done.json["diagnostic"]
    assert told["before"]["seen_in"] == first["run"]
    assert told["settings"]["NCCL_DEBUG"] == "INFO"
    assert any("NCCL WARN" in line for line in told["warnings"]), told
    assert done.json["next"] == []
    scenario = (Path(done.json["run"]) / "scenario.toml").read_text()
    assert "NCCL_DEBUG" not in scenario, "a later run with the kept scenario is none of diagnosis"
    assert json.loads((Path(done.json["run"]) / "run.json").read_text())["diagnostic"] == told


def test_a_diagnostic_run_is_never_the_failure_before(bed: Bed) -> None:
    bed.faults(GROUP)
    run(bed, "--diagnose")
    done = run(bed, "--diagnose")
    assert "nothing to compare with" in done.stdout, done.stderr
    assert "kept apart from proofs" in done.stdout


def test_a_cause_that_is_certain_needs_no_diagnosis(bed: Bed) -> None:
    bed.faults({"stage": "weight_access", "family": "weights_missing"})
    assert run(bed, "--json").json["next"] == []


def test_one_re_run_is_one(bed: Bed) -> None:
    assert run(bed, "--diagnose", "--repeat", "2").code == 2


def test_a_search_whose_minimal_command_fails_offers_it_and_is_the_failure_before(bed: Bed) -> None:
    bed.faults({"stage": "comm_group", "family": "nccl"})
    search = bed.repro(*bed.search(flags=("--tensor-parallel-size", "2", "--max-num-seqs", "64")))
    assert search.code == 1, search.stderr
    (line,) = [line for line in search.stdout.splitlines() if "--diagnose" in line]
    words = shlex.split(line.removeprefix("next:"))
    done = bed.repro(*words[1:])
    assert done.code == 1, done.stderr
    assert "nothing to compare with" not in done.stdout
    assert "NCCL WARN" in done.stdout


def test_the_ladder_names_the_first_failing_rung(bed: Bed) -> None:
    """The simulator's interpreter has no PyTorch, so the all-reduce cannot be tested, which says nothing."""
    bed.faults(GROUP)
    offered = [line for line in run(bed).stdout.splitlines() if "--rank-ladder" in line]
    words = shlex.split(offered[0].removeprefix("next:"))
    done = bed.repro("run", "--json", *words[2:])
    assert done.code == 1, done.stderr
    rungs = [(rung["rung"], rung["outcome"]) for rung in done.json["rungs"]]
    assert rungs == [("reach", "passed"), ("all_reduce", "unresolved"), ("dummy weights, eager", "failed")]
    assert (done.json["failing_rung"], done.json["failure"]["stage"]) == ("dummy weights, eager", "comm_group")
    assert done.json["failure"]["root_line_no"]
    assert done.json["ruled_out"] == ["the network between the ranks and its ports"]
    assert bed.servers() == []


def test_a_fault_of_the_graphs_is_found_on_the_last_rung(bed: Bed) -> None:
    bed.faults({"stage": "engine_init", "family": "kernel_compile", "when": "not flag('--enforce-eager')"})
    done = run(bed, "--rank-ladder")
    assert done.code == 1, done.stderr
    assert "first failing rung: graphs, engine_init/kernel_compile" in done.stdout
    assert "masking, no mend" in done.stdout
    assert run(bed, "--rank-ladder", "--repeat", "2").code == 2
