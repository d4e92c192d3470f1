"""`repro snapshot` of the real vLLM: a process that runs and one whose engine was killed; a container that runs and
one that has ended. Two launches.
"""

from __future__ import annotations

import gzip
import json
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from repro.snapshot.schema import snapshot_schema
from tests.integration.docker_bed import docker, mounts, no_daemon, thin_image
from tests.real.bed.install import REPOSITORY, venv_path
from tests.real.bed.server import Server, free_port
from tests.real.repro_command import repro

READY_SECONDS = 180.0
SECRET = "hf_" + "rE4lS3cR3tV4lu3F0rTh3R3alT3st"
ENGINE = "VLLM::EngineCore"


@pytest.fixture
def snapshot(tmp_path: Path, server_environment: dict[str, str]) -> Callable[..., dict[str, Any]]:
    """Takes a snapshot in a workspace of its own and gives its JSON."""
    (tmp_path / "work/.repro").mkdir(parents=True)

    def take(*words: str | Path) -> dict[str, Any]:
        environment = {**server_environment, "PYTHONPATH": str(REPOSITORY)}
        ran = repro(["snapshot", "--json", *words], tmp_path / "work", environment)
        assert ran.code == 0, ran.talk
        return ran.document

    return take


def value(document: dict[str, Any], name: str) -> Any:
    group, short = name.split(".")
    fact = document["facts"][group][short]
    assert fact["label"] != "unavailable", (name, fact)
    return fact["value"]


def check_files(document: dict[str, Any], log: bytes) -> None:
    """Every file holds to its schema and holds no secret; the copy has at least the lines of `log`."""
    folder = Path(document["folder"])
    for kind in ("fingerprint", "snapshot"):
        jsonschema.validate(json.loads((folder / f"{kind}.json").read_text()), snapshot_schema(kind))
    copy = gzip.decompress((folder / "server.log.gz").read_bytes())
    assert copy.count(b"\n") >= log.count(b"\n")
    for content in (copy, *((folder / name).read_bytes() for name in document["files"])):
        assert SECRET.encode() not in content


def test_a_real_process_while_it_serves_and_after_its_engine_was_killed(
    start_server: Callable[..., Server], snapshot: Callable[..., dict[str, Any]], tiny_model: Path, tmp_path: Path
) -> None:
    server = start_server(
        env={"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "HF_TOKEN": SECRET, "VLLM_LOG_STATS_INTERVAL": "1"}
    )
    server.wait_ready()
    request = {"model": server.model(), "messages": [{"role": "user", "content": "How is the weather?"}]}
    (tmp_path / "request.json").write_text(json.dumps({**request, "max_tokens": 40, "temperature": 0}))
    counted = server.request("/v1/chat/completions", {**request, "max_tokens": 40}).body["usage"]["prompt_tokens"]

    before = server.log.read_bytes()
    serving = snapshot("--pid", str(server.process.pid), "--request", tmp_path / "request.json")
    assert serving["triage"]["stage"] == "none"
    assert value(serving, "log.path") == str(server.log), "found by the process's own output"
    assert ENGINE in [child["name"] for child in value(serving, "process.children")]
    assert server.port in value(serving, "process.ports")
    assert any(each["name"] == "libgomp" for each in value(serving, "process.libraries"))
    assert value(serving, "inside.vllm") == value(serving, "libraries.vllm")
    assert value(serving, "inside.interpreter") == str(venv_path() / "bin/python")
    assert value(serving, "inside.torch").startswith("2.")
    assert value(serving, "request.input_tokens") == counted
    assert "/tokenize" in serving["facts"]["request"]["input_tokens"]["reason"]
    assert value(serving, "configuration.arguments")["--max-model-len"] == "1024"
    assert value(serving, "configuration.server_version") == value(serving, "configuration.engine_version")
    assert value(serving, "configuration.cache")["enable_prefix_caching"] == "True"
    assert value(serving, "configuration.defaults")["--enable-prefix-caching"] is True
    assert value(serving, "model_files.index")["missing"] == []
    assert value(serving, "model_files.path") == str(tiny_model)
    check_files(serving, before)

    server.kill_member(ENGINE)
    assert server.wait_end(60) is not None
    dead = snapshot("--pid", str(server.process.pid), "--log", server.log)
    assert (dead["triage"]["stage"], dead["triage"]["family"]) == ("serving", "engine_dead")
    assert "does not exist" in dead["missing"]["process.argv"]
    assert value(dead, "serving.requests")["served"] >= 1
    assert value(dead, "serving.series")[0]["running"] >= 0
    assert dead["previous"] == serving["id"]
    assert f"--log {server.log}" in dead["next"] or f"--pid {server.process.pid}" in dead["next"]
    check_files(dead, server.log.read_bytes())


@pytest.fixture
def container(vllm: Path, tiny_model: Path, quick_flags: tuple[str, ...]) -> Iterator[str]:
    """The name of a container in which the real vLLM has become ready."""
    if reason := no_daemon():
        pytest.skip(reason)
    name, port = f"repro-real-{secrets.token_hex(4)}", free_port()
    # The counted program writes its line beside itself.
    binds = [f"--volume={path}:{path}:ro" for path in mounts(venv_path(), tiny_model)]
    binds.append(f"--volume={vllm.parents[1]}:{vllm.parents[1]}")
    environment = {
        "PATH": f"{venv_path()}/bin:/usr/bin:/bin",
        "OMP_NUM_THREADS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_TOKEN": SECRET,
    }
    variables = [f"--env={key}={text}" for key, text in environment.items()]
    command = [str(vllm), "serve", str(tiny_model), *quick_flags, "--host", "0.0.0.0", "--port", str(port)]
    publish = f"--publish=127.0.0.1:{port}:{port}"
    with thin_image() as image:
        docker("run", "--detach", f"--name={name}", "--memory=8g", publish, *binds, *variables, image, *command)
        try:
            wait_ready(name)
            yield name
        finally:
            subprocess.run(["docker", "rm", "--force", name], capture_output=True, timeout=60, check=False)


def wait_ready(name: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        told = subprocess.run(["docker", "logs", name], capture_output=True, timeout=60, check=True)
        if b"Application startup complete." in told.stdout + told.stderr:
            return
        assert json.loads(docker("inspect", name))[0]["State"]["Running"], (told.stdout + told.stderr)[-3000:].decode()
        assert time.monotonic() < deadline, "it was not ready in time"
        time.sleep(0.5)


@pytest.mark.docker
def test_a_real_container_while_it_runs_and_when_it_has_ended(
    container: str, snapshot: Callable[..., dict[str, Any]], tiny_model: Path
) -> None:
    running = snapshot("--container", container)
    assert running["triage"]["stage"] == "none"
    assert value(running, "container.state")["running"] is True
    assert value(running, "container.limits")["memory"] == 8 << 30
    assert value(running, "inside.interpreter") == str(venv_path() / "bin/python"), "the server's, not the image's"
    assert value(running, "inside.vllm")
    assert value(running, "inside.torch").startswith("2.")
    assert "libraries.vllm" in running["missing"], "the host's own libraries are not the container's"
    assert any(each["name"] == "libgomp" for each in value(running, "process.libraries"))
    assert value(running, "configuration.server_version")
    assert value(running, "configuration.cache")["block_size"]
    assert value(running, "model_files.path") == str(tiny_model)
    assert running["warnings"] == []
    check_files(running, b"")

    docker("kill", container)
    ended = snapshot("--container", container, "--inside")
    assert value(ended, "container.state")["exit_code"] == 137
    assert value(ended, "inside.vllm") == value(running, "inside.vllm")
    assert value(ended, "inside.packages_sha256") == value(running, "inside.packages_sha256")
    assert value(ended, "configuration.engine") == value(running, "configuration.engine")
    assert ended["triage"]["stage"] != "none"
    check_files(ended, b"")
