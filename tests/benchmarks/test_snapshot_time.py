"""A snapshot takes a tenth (process) or a fifth (container) of the time of `vllm collect-env` in the same environment.

Both are whole command lines on the same machine, in turns and in one run; the shortest time of each counts, so only
their ratio is judged. The snapshot is without the inner interpreter, which imports torch and has its own deadline.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.capture import capture, default_collectors
from repro.snapshot.collector import Context
from tests.integration.docker_bed import docker, mounts, no_daemon, thin_image
from tests.real.bed.install import REPOSITORY, is_installed, venv_path, vllm_program
from tests.real.bed.model import make_tiny
from tests.real.bed.server import Server, free_port

ROUNDS = 2
MOST_PROCESS, MOST_CONTAINER = 0.1, 0.2
NEVER_DEADLINE = 1.0
READY_SECONDS = 180.0
FLAGS = ("--host", "127.0.0.1", "--max-model-len", "1024", "--enforce-eager", "--kv-cache-memory-bytes", "67108864")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def vllm() -> Path:
    """The real `vllm` program."""
    if not is_installed():
        pytest.skip(f"no real vLLM in {venv_path()}; python3 tests/real/bed/install.py puts it there (about 2 minutes)")
    return vllm_program()


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """vLLM leaves its sockets in the temporary directory, and their paths may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        yield Path(directory)


def seconds(argv: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> float:
    """How long this command takes that must end well."""
    begun = time.monotonic()
    done = subprocess.run(argv, cwd=cwd, env=dict(environment), capture_output=True, timeout=200, check=False)
    passed = time.monotonic() - begun
    assert done.returncode == 0, done.stderr[-2000:].decode(errors="replace")
    return passed


def compared(what: str, folder: Path, words: Sequence[str], collect_env: Callable[[], float]) -> float:
    """The snapshot's share of the time of `vllm collect-env`, printed."""
    (folder / ".repro").mkdir(parents=True)
    argv = [sys.executable, "-m", "repro", "snapshot", "--no-inside", *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(seconds(argv, folder, environment))
        theirs.append(collect_env())
    ratio = min(ours) / min(theirs)
    print(f"\nsnapshot of a {what}: {ratio:.3f} of vllm collect-env ({min(ours):.2f} s against {min(theirs):.2f} s)")
    return ratio


def test_a_process_takes_a_tenth(vllm: Path, short_directory: Path, tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(short_directory)}
    argv = [str(vllm), "serve", str(make_tiny()), *FLAGS]
    with Server(argv, environment, tmp_path / "server.log", free_port(), tmp_path) as server:
        server.wait_ready()
        ratio = compared(
            "process",
            tmp_path / "work",
            ("--pid", str(server.process.pid)),
            lambda: seconds([str(vllm), "collect-env"], tmp_path, environment),
        )
    assert ratio <= MOST_PROCESS


@pytest.fixture
def container(vllm: Path) -> Iterator[str]:
    """The name of a container in which the real vLLM has become ready."""
    if reason := no_daemon():
        pytest.skip(reason)
    model, name = make_tiny(), f"repro-bench-{secrets.token_hex(4)}"
    inside = {**ENVIRONMENT, "PATH": f"{venv_path()}/bin:/usr/bin:/bin"}
    options = [f"--volume={path}:{path}:ro" for path in mounts(venv_path(), model)]
    options += [f"--env={key}={text}" for key, text in inside.items()]
    with thin_image() as image:
        docker("run", "--detach", f"--name={name}", *options, image, str(vllm), "serve", str(model), *FLAGS)
        try:
            wait_ready(name)
            yield name
        finally:
            subprocess.run(["docker", "rm", "--force", name], capture_output=True, timeout=60, check=False)


def wait_ready(name: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        told = subprocess.run(["docker", "logs", name], capture_output=True, timeout=60, check=True)
        log = (told.stdout + told.stderr).decode(errors="replace")
        if "Application startup complete." in log:
            return
        assert docker("inspect", "--format", "{{.State.Running}}", name) == "true", log[-3000:]
        assert time.monotonic() < deadline, f"it was not ready in time:\n{log[-3000:]}"
        time.sleep(0.5)


def test_a_container_takes_a_fifth(vllm: Path, container: str, tmp_path: Path) -> None:
    ratio = compared(
        "container",
        tmp_path / "work",
        ("--container", container),
        lambda: seconds(["docker", "exec", container, str(vllm), "collect-env"], tmp_path, os.environ),
    )
    assert ratio <= MOST_CONTAINER


class Never:
    """A collector that sleeps for ever; daemon threads end with the process."""

    name = "never"
    fields = ("answer",)
    deadline = NEVER_DEADLINE

    def collect(self, context: Context) -> Mapping[str, Fact]:
        while True:
            time.sleep(60)


def test_a_collector_that_sleeps_for_ever_delays_nothing_beyond_its_deadline() -> None:
    context = Context(Redactor(), pid=os.getpid())
    rest = default_collectors(ask_inside=False)
    alone, beside = [], []
    for _ in range(ROUNDS):
        alone.append(timed(lambda: capture(context, rest).facts))
        beside.append(timed(lambda: capture(context, (Never(), *rest)).facts))
    (least, facts), (most, all_facts) = min(alone, key=first), min(beside, key=first)
    print(
        f"\nsnapshot beside a collector that sleeps for ever: {most - least:.2f} s longer than without "
        f"({least:.2f} s), its deadline {NEVER_DEADLINE:g} s"
    )
    assert all_facts.pop("never")["answer"].reason == f"no answer within {NEVER_DEADLINE:g} s"
    assert {group: known(members) for group, members in all_facts.items()} == {
        group: known(members) for group, members in facts.items()
    }
    assert most <= least + NEVER_DEADLINE * 1.2


Groups = Mapping[str, Mapping[str, Fact]]


def timed(work: Callable[[], Groups]) -> tuple[float, dict[str, Mapping[str, Fact]]]:
    begun = time.monotonic()
    facts = work()
    return time.monotonic() - begun, dict(facts)


def first(pair: tuple[float, object]) -> float:
    return pair[0]


def known(members: Mapping[str, Fact]) -> set[str]:
    return {name for name, fact in members.items() if fact.known}
