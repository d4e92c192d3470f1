"""`repro init` takes the production command from wherever it is: words, script, process, wrapper, log, container."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro.domain.command import parse
from repro.recipe.assemble import load_scenario

FLAGS = ("--max-model-len", "4096", "--enable-prefix-caching")
MODEL = "some/model"


def init(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "repro", "init", "-o", "scenario.toml", *words],
        cwd=folder,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def check_scenario(folder: Path) -> None:
    """Whatever the source, production is the same command, and what is read back is ready for a search."""
    scene = load_scenario(folder / "scenario.toml")
    assert scene.production.model == MODEL
    assert scene.production.flag("--max-model-len") == "4096"
    assert scene.minimal.flag("--max-model-len") is None
    assert [v.name for v in scene.variables] == ["prefix_caching", "--max-model-len"]


def test_words_and_the_shell_environment_on_both_ends(tmp_path: Path) -> None:
    done = init(
        tmp_path, "--", "vllm", "serve", MODEL, *FLAGS, NCCL_DEBUG="INFO", HF_TOKEN="hf_not_to_be_written_1234567"
    )
    assert done.returncode == 0, done.stderr
    check_scenario(tmp_path)
    scene = load_scenario(tmp_path / "scenario.toml")
    assert scene.environment == (("NCCL_DEBUG", "INFO"),)
    assert scene.environment_from == ("HF_TOKEN",)
    assert "not_to_be_written" not in (tmp_path / "scenario.toml").read_text() + done.stdout + done.stderr


def test_a_script_file(tmp_path: Path) -> None:
    script = tmp_path / "start.sh"
    script.write_text(f"#!/bin/bash\n# starts it\nset -e\nexec vllm serve {MODEL} \\\n  {' '.join(FLAGS)}\n")
    done = init(tmp_path, "--file", str(script))
    assert done.returncode == 0, done.stderr
    check_scenario(tmp_path)


def test_a_log_with_its_arguments(tmp_path: Path) -> None:
    arguments = {"model_tag": MODEL, "model": MODEL, "max_model_len": 4096, "enable_prefix_caching": True}
    line = f"(APIServer pid=7) INFO 12-01 10:00:00 [api_utils.py:286] non-default args: {arguments}\n"
    (tmp_path / "server.log").write_text("something before\n" + line)
    done = init(tmp_path, "--log", "server.log")
    assert done.returncode == 0, done.stderr
    check_scenario(tmp_path)


@pytest.fixture
def wrapped(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A wrapper script that started a server (the simulator) and waits for it."""
    script = tmp_path / "start.sh"
    server = f'"{sys.executable}" -m repro.simulator serve {MODEL} --port 0 {" ".join(FLAGS)}'
    script.write_text(f"#!/bin/sh\n{server} > server.log 2>&1 &\nwait\n")
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "INFO", "REPRO_SIMULATOR_STARTUP_SECONDS": "0"}
    process = subprocess.Popen(["sh", str(script)], cwd=tmp_path, env=environment, start_new_session=True)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_wrapper_process_is_resolved_by_what_it_started(tmp_path: Path, wrapped: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while "serving model" not in _read(tmp_path / "server.log") and "version" not in _read(tmp_path / "server.log"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    done = init(tmp_path, "--pid", str(wrapped.pid))
    assert done.returncode == 0, done.stderr
    check_scenario(tmp_path)
    assert ("VLLM_LOGGING_LEVEL", "INFO") in load_scenario(tmp_path / "scenario.toml").environment


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--", "./start.sh"), "not seen from here"),
        (("--", "python", "-m", "http.server"), "not a vLLM server"),
        (("--pid", "999999999"), "no process 999999999"),
        (("--log", "empty.log"), "non-default args"),
        ((), "give the production command once"),
        (("--pid", "1", "--", "vllm", "serve", "m"), "give the production command once"),
    ],
)
def test_what_cannot_be_understood_says_so_and_writes_nothing(
    tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty.log").write_text("nothing of vLLM\n")
    done = init(tmp_path, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "scenario.toml").exists()


@pytest.mark.docker
def test_a_container_that_never_ran(tmp_path: Path) -> None:
    """Docker keeps what it was asked to start, also where the image holds no such program."""
    name = f"repro-test-init-{os.getpid()}"
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no Docker daemon answers here")
    empty = subprocess.run(["tar", "c", "-T", "/dev/null"], capture_output=True, check=True).stdout
    image = (
        subprocess.run(["docker", "import", "-"], input=empty, capture_output=True, check=True).stdout.decode().strip()
    )
    try:
        environment = ("-e", "NCCL_DEBUG=INFO", "-e", "HF_TOKEN=hf_not_to_be_written_1234567")
        started = ("vllm", "serve", MODEL, *FLAGS)
        subprocess.run(
            ["docker", "create", "--name", name, *environment, image, *started], capture_output=True, check=True
        )
        done = init(tmp_path, "--container", name)
    finally:
        subprocess.run(["docker", "rm", "-f", name], capture_output=True, check=False)
        subprocess.run(["docker", "rmi", image], capture_output=True, check=True)
    assert done.returncode == 0, done.stderr
    check_scenario(tmp_path)
    text = (tmp_path / "scenario.toml").read_text()
    assert 'env_from = ["HF_TOKEN"]' in text
    assert "not_to_be_written" not in text


def test_the_written_commands_parse_back(tmp_path: Path) -> None:
    done = init(tmp_path, "--", "FOO_UNKNOWN=1", "vllm", "serve", MODEL, *FLAGS, "-O3", "--kv-cache-dtype=fp8")
    assert done.returncode == 0, done.stderr
    scene = load_scenario(tmp_path / "scenario.toml")
    assert parse(scene.production.shell()) == scene.production


@pytest.mark.parametrize("misplaced", ["--recipe", "--input-tokens"])
def test_an_option_of_repro_behind_the_dashes_is_refused(tmp_path: Path, misplaced: str) -> None:
    done = init(tmp_path, "--", "vllm", "serve", MODEL, *FLAGS, misplaced, "7")
    assert done.returncode == 2
    assert misplaced in done.stderr
    assert "before `--`" in done.stderr


def test_a_typed_secret_needs_no_export_and_is_never_written(tmp_path: Path) -> None:
    server = (sys.executable, "-m", "repro.simulator", "serve", MODEL)
    secret = "sk-typedtypedtypedtyped12345"
    done = subprocess.run(
        [sys.executable, "-m", "repro", "run", "--", *server, "--api-key", secret],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "REPRO_SIMULATOR_STARTUP_SECONDS": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert secret not in done.stdout + done.stderr
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            assert secret.encode() not in data, path
