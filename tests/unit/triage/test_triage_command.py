"""`repro triage` as it is called: exit codes, the text for people, JSON, several logs, own patterns."""

# ruff: noqa: E501 (log lines stand here as programs print them)
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.cli.main import run

BANNER = "(APIServer pid=1) INFO 12-01 13:35:46 [api_utils.py:347]  █     █  version 0.32.0\n"
CONFIG = "(APIServer pid=1) INFO 12-01 13:35:50 [model.py:733] Resolved architecture: Qwen3ForCausalLM\n"
READY = "INFO:     Application startup complete.\n"
FAULT = "(Worker_TP3 pid=9) ERROR 12-01 13:36:02 [worker.py:9] torch.OutOfMemoryError: CUDA out of memory.\n"
ECHO = "(EngineCore pid=7) ERROR 12-01 13:36:03 [core.py:9] EngineCore failed to start.\n"
HOUSE = '[[pattern]]\nid = "house-rule"\nany = ["house rule"]\nstage = "api_ready"\nfamily = "config_invalid"\nexample = "house rule 7 broken"\nwhy = "our launcher checks it"\n'


Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return written


def test_a_failure_is_told_with_its_line_its_neighbours_and_what_it_means(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write("a.log", BANNER + CONFIG + FAULT + ECHO)
    assert run(["triage", log]) == 1
    told = capsys.readouterr().out
    assert f"{log}: engine_init/oom_gpu (vLLM 0.32.0)" in told
    assert "line 3, Worker_TP3, rank 3:" in told
    assert "> 3  (Worker_TP3 pid=9)" in told
    assert "  2  (APIServer pid=1)" in told
    assert "  4  (EngineCore pid=7)" in told
    assert "means:" in told
    assert "nvidia-smi" in told
    assert "ignore:   4 (lines that only follow from it)" in told
    assert "expected:" in told


def test_no_memory_advice_stands_with_a_fault_that_is_none_of_memory(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["triage", write("a.log", BANNER + "vllm: error: unrecognized arguments: --nope\n")]) == 1
    told = capsys.readouterr().out
    assert "engine_init/arg_error" in told
    assert "memory" not in told.partition("means:")[2]


def test_what_the_log_does_not_hold_is_said_with_where_it_may_be(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["triage", write("a.log", BANNER + CONFIG + ECHO)]) == 1
    told = capsys.readouterr().out
    assert "does not say why" in told
    assert "dmesg" in told


def test_exit_codes_of_health_and_of_strangers(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["triage", write("ready.log", BANNER + READY)]) == 0
    assert "no failure (vLLM 0.32.0)" in capsys.readouterr().out
    assert run(["triage", write("nginx.log", "2025/01/01 00:00:00 [error] 7#7: *1 connect() failed\n")]) == 10
    assert "not a vLLM log" in capsys.readouterr().out
    assert run(["triage", write("empty.log", "")]) == 10


def test_json_of_one_log_and_of_several(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    bad, good = write("bad.log", BANNER + CONFIG + FAULT), write("good.log", BANNER + READY)
    assert run(["triage", "--json", bad]) == 1
    one = json.loads(capsys.readouterr().out)
    assert (one["schema"], one["stage"], one["family"], one["root_line_no"], one["rank"]) == (
        "repro/triage",
        "engine_init",
        "oom_gpu",
        3,
        3,
    )
    assert run(["triage", "--json", good, bad]) == 1
    both = json.loads(capsys.readouterr().out)
    assert (both["source"], both["rank"], both["family"], both["root_line"]) == (bad, 3, "oom_gpu", FAULT.rstrip("\n"))
    assert [(entry["source"], entry["stage"]) for entry in both["logs"]] == [(good, "none"), (bad, "engine_init")]


def test_several_logs_in_words(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    bad, good = write("bad.log", BANNER + CONFIG + FAULT), write("good.log", BANNER + READY)
    assert run(["triage", good, bad]) == 1
    told = capsys.readouterr().out
    assert told.startswith(f"{bad} (rank 3) failed first: engine_init/oom_gpu")
    assert f"{good}: no failure" in told
    assert run(["triage", good, write("too.log", BANNER + READY)]) == 0


def test_wrong_use_of_several_logs(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    log = write("a.log", BANNER)
    assert run(["triage", log, log]) == 2
    assert run(["triage", log, write("b.log", BANNER), "--exit-code", "1"]) == 2
    assert run(["triage", str(Path(log).parent / "gone.log")]) == 2
    assert "gone.log" in capsys.readouterr().err
    assert run(["triage"]) == 2


def test_own_patterns_go_before_the_shipped_ones(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    log = write(
        "a.log",
        BANNER + CONFIG + "(APIServer pid=1) ERROR 12-01 13:35:51 [x.py:1] house rule 7 broken: CUDA out of memory\n",
    )
    own = write("own.toml", HOUSE)
    other = write("other.toml", HOUSE.replace("house-rule", "other").replace("house rule", "nothing like it"))
    assert run(["triage", "--json", log]) == 1
    assert json.loads(capsys.readouterr().out)["family"] == "oom_gpu"
    assert run(["triage", "--json", log, "--patterns", own, "--patterns", other]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["stage"], found["family"]) == ("api_ready", "config_invalid")


def test_a_wrong_pattern_file_names_file_row_and_mend(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    own = write("own.toml", HOUSE.replace("api_ready", "ready"))
    assert run(["triage", write("a.log", BANNER), "--patterns", own]) == 2
    told = capsys.readouterr().err
    assert "own.toml" in told
    assert "house-rule" in told
    assert "api_ready" in told


def test_a_secret_in_the_root_line_is_not_shown_in_words(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    token = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"
    log = write("a.log", BANNER + f"vllm: error: unrecognized arguments: --token {token}\n")
    assert run(["triage", log]) == 1
    assert token not in capsys.readouterr().out


def test_a_line_of_ten_megabytes_is_shown_cut(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    log = write("a.log", BANNER + CONFIG + FAULT.rstrip("\n") + " x" * (5 << 20) + "\n" + ECHO)
    assert run(["triage", log]) == 1
    told = capsys.readouterr().out
    assert "engine_init/oom_gpu" in told
    assert len(told) < 5000
