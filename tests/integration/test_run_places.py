"""`repro run` and `bisect` where servers are no processes of repro's own: endpoints, containers; repeats, clean."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from repro.runner.container_command import LABEL
from tests.integration.cli_bed import LONG_PROMPTS, MANY_SEQUENCES, Bed
from tests.integration.docker_bed import ROOT, docker, mounts, no_daemon, thin_image

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
SERVER_FAULT = {"stage": "engine_init", "family": "oom_gpu", "when": "flag('--max-num-seqs') == 64"}


def until(holds: Callable[[], bool], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:  # noqa: S310 - loopback
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


@pytest.fixture
def endpoint(bed: Bed) -> Iterator[str]:
    """A simulator that somebody else runs, which fails at long prompts and lives on."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bed.faults({"stage": "serving", "family": "context_length", "when": "input_tokens >= 300"})
    words = list(bed.vllm("--port", str(port)))
    environment = dict(word.split("=", 1) for word in words if "=" in word and word.startswith("REPRO_"))
    argv = [word for word in words if not word.startswith("REPRO_")]
    process = subprocess.Popen(
        argv, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: healthy(f"http://127.0.0.1:{port}"))
        yield f"http://127.0.0.1:{port}"
        assert process.poll() is None, "somebody else's server is never stopped"
    finally:
        process.kill()
        process.wait()


def test_how_often_which_stage_fails(bed: Bed) -> None:
    bed.faults(MANY_SEQUENCES)
    words = ("--recipe", "bed.toml", "--json", "--repeat", "3", "--")
    found = bed.repro("run", *words, *bed.vllm("--max-num-seqs", "64"))
    assert found.code == 1
    document = found.json
    assert document["runs"] == 3
    assert [run["outcome"] for run in document["each"]] == ["failed"] * 3
    assert (document["rate"], document["stable"]) == (1.0, True)
    assert document["interval"][0] > 0.4
    assert document["interval"][1] == 1.0
    (row,) = document["stages"]
    assert (row["stage"], row["family"], row["count"]) == ("engine_init", "oom_gpu", 3)
    assert len({run["log"] for run in document["each"]}) == 3
    passed = bed.repro("run", "--recipe", "bed.toml", "--repeat", "2", "--", *bed.vllm())
    assert passed.code == 0
    assert "0 of 2 launches failed" in passed.stdout
    assert "may still be there" in passed.stdout


def test_requests_are_tried_on_somebody_elses_server(bed: Bed, endpoint: str) -> None:
    assert bed.repro("run", "--endpoint", endpoint, "--input-tokens", "100").code == 0
    found = bed.repro("bisect", "--json", "--endpoint", endpoint, "--input-tokens", "600", "--precision", "0.1")
    assert found.code == 0, found.stderr
    (finding,) = found.json["findings"]
    (member,) = finding["variables"]
    assert member["name"] == "input_tokens"
    assert member["passing"] < 300 <= member["failing"]
    assert healthy(endpoint)


def test_a_setting_cannot_be_tried_on_somebody_elses_server(bed: Bed, endpoint: str) -> None:
    words = ("--recipe", "bed.toml", "--endpoint", endpoint, "--", *bed.vllm("--max-num-seqs", "64"))
    refused = bed.repro("bisect", *words)
    assert refused.code == 2
    assert "--max-num-seqs" in refused.stderr
    both = bed.repro("run", "--endpoint", endpoint, "--engine", "process")
    assert both.code == 2


def test_an_endpoint_that_does_not_answer(bed: Bed) -> None:
    gone = bed.repro("run", "--endpoint", "http://127.0.0.1:9", "--input-tokens", "9")
    assert gone.code == 2
    assert "/v1/models" in gone.stderr or "does not tell" in gone.stderr


@pytest.fixture
def image(bed: Bed) -> Iterator[str]:
    """An image of this test's own, with whatever was made of it taken away in the end."""
    if reason := no_daemon():
        pytest.skip(reason)
    with thin_image() as reference:
        yield reference
        bed.close()
        for container in left(reference).split():
            docker("rm", "--force", container)


def in_container(bed: Bed, image: str, *flags: str, startup: str = "0.05") -> tuple[str, ...]:
    words = bed.vllm(*flags, startup=startup)
    pairs = [word for word in words if word.startswith("REPRO_")]
    environment = [token for pair in pairs for token in ("-e", pair)]
    binds = [token for path in (*mounts(), bed.folder) for token in ("-v", f"{path}:{path}:ro")]
    # The simulator serves on the loopback address alone, whatever it is told.
    return (
        "docker",
        "run",
        "--rm",
        "--network",
        "host",
        "-w",
        str(ROOT),
        *binds,
        *environment,
        image,
        *words[len(pairs) :],
    )


def left(image: str) -> str:
    return docker("ps", "--all", "--quiet", "--filter", f"ancestor={image}")


@pytest.mark.docker
def test_a_docker_run_line_is_run_as_a_container(bed: Bed, image: str) -> None:
    bed.faults(LONG_PROMPTS)
    ran = bed.repro("run", "--json", "--recipe", "bed.toml", "--input-tokens", "100", "--", *in_container(bed, image))
    assert ran.code == 0, ran.stderr
    failed = bed.repro(
        "run", "--json", "--recipe", "bed.toml", "--input-tokens", "400", "--", *in_container(bed, image)
    )
    assert failed.code == 1
    assert failed.json["failure"]["family"] == "illegal_memory_access"
    assert not left(image)
    plain = bed.repro("run", "--engine", "process", "--recipe", "bed.toml", "--", *in_container(bed, image))
    assert plain.code == 2


@pytest.mark.docker
def test_a_search_through_containers(bed: Bed, image: str) -> None:
    bed.faults(LONG_PROMPTS)
    words = ("--json", "--recipe", "bed.toml", "--precision", "0.2", "--input-tokens", "600")
    found = bed.repro(
        "bisect",
        *words,
        "--",
        *in_container(bed, image),
    )
    assert found.code == 0, found.stderr
    (finding,) = found.json["findings"]
    (member,) = finding["variables"]
    assert member["passing"] < 300 <= member["failing"] <= member["passing"] * 1.2
    assert not left(image)


@pytest.mark.docker
def test_clean_lists_first_and_removes_what_a_killed_repro_left(bed: Bed, image: str) -> None:
    process = bed.start("run", "--recipe", "bed.toml", "--", *in_container(bed, image, startup="60"))
    until(lambda: bool(left(image)))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    listed = bed.repro("clean", "--dry-run", "--json").json
    (found,) = listed["found"]
    assert len(found["containers"]) == 1
    assert listed["servers"] == []
    assert left(image), "listing removes nothing"
    cleaned = bed.repro("clean")
    assert cleaned.code == 0
    assert found["containers"][0][:12] in cleaned.stderr, "what is there is said first"
    assert not left(image)
    assert not docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={found['id']}")
    assert "nothing was left" in bed.repro("clean", "--dry-run").stdout


@pytest.mark.docker
def test_ctrl_c_leaves_no_container(bed: Bed, image: str) -> None:
    process = bed.start("run", "--recipe", "bed.toml", "--", *in_container(bed, image, startup="60"))
    until(lambda: bool(left(image)))
    process.send_signal(signal.SIGINT)
    assert bed.end(process).code == 130
    assert not left(image)
