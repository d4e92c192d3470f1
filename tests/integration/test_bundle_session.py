"""A search on the simulator, its bundle, and the bundle's own script run by hand: the whole way to a platform team."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parents[2]
PATIENCE_S = 90
SCENARIO = """\
schema = "repro/scenario"
version = 1
name = "bundled"
recipe = "generic"
precision = 0.5

[environment.env]
PYTHONPATH = "{repo}"
REPRO_SIMULATOR_FAULTS = "{faults}"
REPRO_SIMULATOR_STARTUP_SECONDS = "0.02"

[minimal]
command = ["{{python}}", "-m", "repro.simulator", "serve", "moonshotai/Kimi-K3", "--no-enable-prefix-caching"]
input_tokens = 64
max_tokens = 4

[production]
command = [
  "{{python}}", "-m", "repro.simulator", "serve", "moonshotai/Kimi-K3",
  "--enable-prefix-caching", "--kv-cache-dtype", "fp8",
]
input_tokens = 2000
max_tokens = 4
concurrency = 2

[[variable]]
name = "input_tokens"
[[variable]]
name = "concurrency"
[[variable]]
name = "--kv-cache-dtype"
[[variable]]
name = "prefix_caching"
"""
WHILE_SERVING = {
    "stage": "serving",
    "family": "illegal_memory_access",
    "when": "prefix_caching and input_tokens >= 700",
}
AT_START = {"stage": "engine_init", "family": "kernel_compile", "when": "flag('--kv-cache-dtype') == 'fp8'"}

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="reproduce.sh needs curl")


@dataclass(frozen=True)
class Bench:
    """A folder with one finished search and its unpacked bundle."""

    folder: Path
    archive: Path
    top: Path
    document: Any

    def script(self, *options: str, port: str | None = None) -> subprocess.CompletedProcess[str]:
        words = ["sh", "reproduce.sh", *options]
        environment = {**clean(self.folder), "PORT": port or free_port()}
        return subprocess.run(
            words, cwd=self.top, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )


def clean(folder: Path) -> dict[str, str]:
    """No more of this environment than any shell has; everything the script writes lies in the test's folder."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "STOP_SECONDS": "5"}


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def repro(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    command = [sys.executable, "-m", "repro", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def searched(folder: Path, fault: dict[str, str]) -> Bench:
    """Searches, bundles, unpacks."""
    (folder / "faults.json").write_text(json.dumps({"fault": [fault]}), encoding="utf-8")
    scenario = SCENARIO.format(repo=REPO, faults=folder / "faults.json")
    (folder / "scenario.toml").write_text(scenario, encoding="utf-8")
    (folder / ".repro").mkdir()
    search = repro(folder, "bisect", "scenario.toml")
    assert search.returncode == 0, search.stdout + search.stderr
    archive = folder / "out.tar.gz"
    done = repro(folder, "bundle", "-o", str(archive), "--json")
    assert done.returncode == 0, done.stderr
    shutil.unpack_archive(archive, folder / "unpacked")
    (top,) = (folder / "unpacked").iterdir()
    return Bench(folder, archive, top, json.loads(done.stdout))


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A fault under a long request with prefix caching: two members, two pairs."""
    return searched(tmp_path_factory.mktemp("serving"), WHILE_SERVING)


@pytest.fixture(scope="module")
def starting(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A fault of one launch flag while the server starts: one pair."""
    return searched(tmp_path_factory.mktemp("starting"), AT_START)


def servers_of(folder: Path) -> list[int]:
    """Pids of stand-ins that were started with this folder's faults."""
    mark = f"REPRO_SIMULATOR_FAULTS={folder / 'faults.json'}".encode()
    found = []
    for process in Path("/proc").iterdir():
        try:
            ours = process.name.isdigit() and mark in (process / "environ").read_bytes()
            if ours and b"repro.simulator" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


def test_the_failing_side_fails_again_and_each_passing_side_passes(serving: Bench) -> None:
    done = serving.script()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "reproduced: the server died under the request" in done.stdout
    assert "root line as in the report:" in done.stdout
    for name in ("input_tokens", "prefix_caching"):
        assert serving.script("--failing", name).returncode == 1
        done = serving.script("--passing", name)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "passed: HTTP 200, and the server is alive"
    assert servers_of(serving.folder) == []


def test_a_fault_at_the_start_needs_no_request(starting: Bench) -> None:
    done = starting.script()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "reproduced: the server ended before it was ready" in done.stdout
    assert "root line as in the report:" in done.stdout
    assert starting.script("--passing").returncode == 0
    assert starting.script("--passing", "--kv-cache-dtype").returncode == 0


def test_the_unpacked_folder_is_whole(serving: Bench) -> None:
    done = subprocess.run(
        ["sha256sum", "-c", "--quiet", "SHA256SUMS"],
        cwd=serving.top,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert serving.document["schema"] == "repro/bundle"
    assert serving.document["outcome"] == "found"
    assert serving.document["archive"] == str(serving.archive)
    assert {f["path"] for f in serving.document["files"]} >= {"REPORT.md", "reproduce.sh", "request-1.json", "curl.sh"}


def test_the_same_session_gives_the_same_bytes_under_its_own_name(serving: Bench) -> None:
    done = repro(serving.folder, "bundle", serving.top.name.removeprefix("bundled-"))
    assert done.returncode == 0, done.stderr
    again = serving.folder / f"{serving.top.name}.tar.gz"
    assert again.read_bytes() == serving.archive.read_bytes()
    done = repro(serving.folder, "bundle")
    assert done.returncode == 2
    assert "is there already" in done.stderr


def test_the_kept_request_has_the_length_that_the_report_names(serving: Bench) -> None:
    journal = (serving.top / "session.jsonl").read_text(encoding="utf-8").splitlines()
    finding = json.loads(journal[-1])["findings"][0]
    failing = next(v["failing"] for v in finding["variables"] if v["name"] == "input_tokens")
    done = serving.script("--failing", "input_tokens")
    (log,) = (line.removeprefix("log: ") for line in done.stdout.splitlines() if line.startswith("log: "))
    assert f"prompt_token_ids_len={failing}," in Path(log).read_text(encoding="utf-8")


@pytest.fixture
def running(serving: Bench) -> Iterator[subprocess.Popen[str]]:
    """The script with a server that is up and never asked: its port is told but its request waits for a pipe."""
    os.mkfifo(serving.top / "held.json")
    script = (serving.top / "reproduce.sh").read_text(encoding="utf-8")
    held = serving.top / "held.sh"
    held.write_text(script.replace("REQUESTS=request.json", "REQUESTS=held.json"), encoding="utf-8")
    process = subprocess.Popen(
        ["sh", "held.sh"],
        cwd=serving.top,
        env={**clean(serving.folder), "PORT": free_port()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.wait(PATIENCE_S)
    held.unlink()
    (serving.top / "held.json").unlink()


def test_a_script_that_is_ended_takes_its_server_along(serving: Bench, running: subprocess.Popen[str]) -> None:
    assert running.stdout is not None
    for line in running.stdout:
        if line == "ready\n":
            break
    assert len(servers_of(serving.folder)) == 1
    # As Ctrl-C and a closed terminal do: to the script and the curl it waits for.
    os.killpg(running.pid, signal.SIGTERM)
    assert running.wait(PATIENCE_S) == 143
    assert servers_of(serving.folder) == []
