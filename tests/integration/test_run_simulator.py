"""`repro run` against the simulator: one launch, its first failing stage or none, and the exit codes for scripts."""

from __future__ import annotations

import gzip
import json
import re
import socket
from pathlib import Path

import pytest

from tests.integration.cli_bed import LONG_PROMPTS, MANY_SEQUENCES, Bed, Done

SLOW_COMPILE = {"stage": "engine_init", "family": "kernel_compile", "do": "slow", "delay_s": 300}
FLAGS = ("--max-num-seqs", "64")


def run(bed: Bed, *options: str, flags: tuple[str, ...] = FLAGS) -> Done:
    return bed.repro("run", "--recipe", "bed.toml", *options, "--", *bed.vllm(*flags))


def test_a_server_that_answers_has_passed(bed: Bed) -> None:
    done = run(bed, "--json", "--input-tokens", "100", "--concurrency", "2")
    assert done.code == 0, done.stderr
    document = done.json
    assert (document["schema"], document["outcome"], document["failure"]) == ("repro/run", "passed", None)
    assert document["reached"][-1] == "serving"
    assert (document["sent"], document["missed"]) == (2, 0)
    assert document["requests"]["prompt_tokens"] == 100
    log = gzip.decompress(Path(document["log"]).read_bytes()).decode()
    assert "Application startup complete" in log
    assert json.loads((Path(document["run"]) / "run.json").read_text()) == document
    assert bed.servers() == []


def test_the_first_failing_stage_is_named_with_family_and_root_line(bed: Bed) -> None:
    bed.faults(MANY_SEQUENCES)
    done = run(bed, "--json")
    assert done.code == 1, done.stderr
    failure = done.json["failure"]
    assert (done.json["outcome"], failure["stage"], failure["family"]) == ("failed", "engine_init", "oom_gpu")
    assert "CUDA out of memory" in failure["root_line"]
    log = gzip.decompress(Path(done.json["log"]).read_bytes()).decode().splitlines()
    assert log[failure["root_line_no"] - 1].strip() == failure["root_line"].strip()
    assert "comm_group" in failure["reached"]
    ladder = [line.split()[0] for line in done.stderr.splitlines() if " done after " in line]
    assert ladder[:3] == ["container_init", "device_recognition", "comm_group"]
    assert "engine_init" not in ladder


def test_the_answer_for_people_names_stage_root_and_log(bed: Bed) -> None:
    bed.faults(MANY_SEQUENCES)
    done = run(bed)
    assert done.code == 1, done.stderr
    assert "first failing stage: engine_init" in done.stdout
    assert "root: line " in done.stdout
    assert ".log.gz" in done.stdout


def test_the_minimal_command_is_started_on_demand(bed: Bed) -> None:
    bed.faults(MANY_SEQUENCES)
    assert run(bed, "--minimal").code == 0


def test_a_hang_is_ended_by_the_stall_limit(bed: Bed) -> None:
    bed.faults({"stage": "comm_group", "family": "hang"})
    done = run(bed, "--json", "--stall", "1")
    assert done.code == 1, done.stderr
    failure = done.json["failure"]
    assert (failure["stage"], failure["family"]) == ("comm_group", "hang")
    assert re.search(r"no log line.* for 1 s", failure["detail"])
    assert bed.servers() == []


def test_a_launch_can_stop_at_a_stage(bed: Bed) -> None:
    """What comes after the stage does not matter any more, not even a failure."""
    bed.faults(SLOW_COMPILE)
    done = run(bed, "--json", "--stop-after", "weight_access")
    assert done.code == 0, done.stderr
    assert "weight_access" in done.json["reached"]
    assert (done.json["outcome"], done.json["sent"]) == ("passed", 0)
    assert bed.servers() == []


@pytest.mark.parametrize(
    ("target", "code"), [("serving/illegal_memory_access", 1), ("serving/oom_gpu", 125), ("engine_init/oom_gpu", 125)]
)
def test_only_the_target_is_bad_to_a_git_bisect(bed: Bed, target: str, code: int) -> None:
    bed.faults(LONG_PROMPTS)
    done = run(bed, "--git-bisect", "--target", target, "--input-tokens", "400")
    assert done.code == code, done.stderr
    assert "illegal_memory_access" in done.stdout


def test_productions_port_is_left_to_whoever_holds_it(bed: Bed) -> None:
    """Production may still run on this machine: repro takes a free port and never touches production's."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        done = run(bed, "--json", flags=(*FLAGS, "--port", port))
        assert done.code == 0, done.stderr
        holder.setblocking(False)
        with pytest.raises(BlockingIOError):
            holder.accept()


def test_a_port_that_vllm_itself_finds_taken_is_named(bed: Bed) -> None:
    bed.faults({"stage": "api_ready", "family": "port_in_use"})
    done = run(bed, "--json")
    assert done.code == 1, done.stderr
    assert (done.json["failure"]["stage"], done.json["failure"]["family"]) == ("api_ready", "port_in_use")


def test_an_interrupted_run_stops_its_server(bed: Bed) -> None:
    bed.faults(SLOW_COMPILE)
    process = bed.start("run", "--recipe", "bed.toml", "--", *bed.vllm(*FLAGS))
    bed.wait_said(process, "weight_access done")
    process.terminate()
    done = bed.end(process)
    assert done.code == 130, done.stderr
    assert "the server was stopped" in done.stderr
    assert bed.servers() == []
