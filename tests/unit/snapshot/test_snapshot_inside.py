"""The server's own Python is asked; what it cannot tell, or not in time, costs its part alone."""

from __future__ import annotations

import os
import shutil
import sys
import venv
from pathlib import Path

import pytest

from repro.domain.command import parse
from repro.domain.fingerprint import Fact
from repro.machine.docker_port import Ran
from repro.redact.redactor import Redactor
from repro.snapshot.capture import capture
from repro.snapshot.collector import Context
from repro.snapshot.inside import InsideCollector, as_owner, host_interpreter
from repro.snapshot.inside_program import MARK
from tests.fakes.docker import FakeDocker, container_facts, image_facts

IMAGE_ID = "sha256:" + "a" * 64
TOLD = (
    f'{MARK}{{"python": "3.12.3", "vllm": "0.29.0", "packages": 300, "packages_sha256": "ab", '
    '"build": {"VLLM_BUILD_COMMIT": "98dff2a8"}}\n'
)
TORCH = f'{MARK}{{"torch": "2.11.0+cu130", "cuda": "13.0", "nccl": "2.28.9", "gpus": 8}}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a `vllm` program, a distribution of that name and a PyTorch of two lines."""
    root = tmp_path_factory.mktemp("server")
    venv.create(root, symlinks=True, with_pip=False)
    site = next(root.glob("lib/python*/site-packages"))
    for name, version in (("vllm", "0.29.0"), ("torch", "2.11.0")):
        (site / f"{name}-{version}.dist-info").mkdir()
        (site / f"{name}-{version}.dist-info/METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    (site / "torch.py").write_text(
        "import os, time\ntime.sleep(float(os.environ.get('SLEEP', 0)))\n"
        "__version__ = '2.11.0+cpu'\nclass version: cuda = None; hip = None\n"
    )
    program = root / "bin/vllm"
    program.write_text(f"#!{root}/bin/python\nraise SystemExit('the server itself is never started')\n")
    program.chmod(0o755)
    return root


def on_host(server: Path, ask_s: float = 30.0, **environment: str) -> dict[str, Fact]:
    env = {"PATH": f"{server}/bin:{os.environ['PATH']}", "VLLM_BUILD_COMMIT": "98dff2a8", **environment}
    context = Context(Redactor(), command=parse("vllm serve m"), environment=env)
    return dict(capture(context, [InsideCollector(ask_s)]).facts["inside"])


def test_the_interpreter_of_the_server_answers(server: Path) -> None:
    facts = on_host(server)
    assert facts["interpreter"].value == f"{server}/bin/python"
    assert facts["vllm"].value == "0.29.0"
    assert facts["torch"].value == "2.11.0+cpu"
    assert facts["build"].value == {"VLLM_BUILD_COMMIT": "98dff2a8"}
    assert facts["packages"].value == 2
    assert facts["cuda"].reason == "this PyTorch is built without CUDA and ROCm"


def test_an_import_that_hangs_costs_what_only_pytorch_knows(server: Path) -> None:
    facts = on_host(server, ask_s=2.0, SLEEP="300")
    assert facts["vllm"].value == "0.29.0"
    assert facts["torch"].value == "2.11.0", "by its metadata"
    assert "not imported within 2 s" in facts["cuda"].reason


def test_nothing_is_written_into_the_environment(server: Path) -> None:
    before = sorted(server.rglob("*"))
    on_host(server)
    assert sorted(server.rglob("*")) == before


def test_a_program_that_is_none_says_so(tmp_path: Path) -> None:
    facts = capture(
        Context(Redactor(), command=parse("vllm serve m"), environment={"PATH": str(tmp_path)}), [InsideCollector()]
    )
    assert facts.missing["inside.vllm"] == "vllm is not on the PATH"
    with pytest.raises(LookupError, match="renamed itself"):
        host_interpreter(["VLLM::EngineCore"], {})


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_what_belongs_to_another_user_is_asked_as_that_user(tmp_path: Path) -> None:
    (tmp_path / "proc/7").mkdir(parents=True)
    assert as_owner(7, tmp_path) == [], "root's own"
    os.chown(tmp_path / "proc/7", 65534, 65533)
    assert as_owner(7, tmp_path)[1:] == ["--reuid=65534", "--regid=65533", "--clear-groups", "--"]
    assert as_owner(None, tmp_path) == []


def container(docker: FakeDocker, *, running: bool, inside: bool = False) -> dict[str, Fact]:
    argv = (sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", "m")
    facts = container_facts("1" * 64, "prod", argv, image_id=IMAGE_ID, Running=running)
    facts["Mounts"] = [
        {"Type": "bind", "Source": "/src/vllm", "Destination": "/vllm"},
        {"Type": "bind", "Source": "/var/run/docker.sock", "Destination": "/var/run/docker.sock"},
        {"Type": "volume", "Name": "cache", "Source": "/var/lib/docker/volumes/cache", "Destination": "/cache"},
    ]
    docker._containers = [facts]
    context = Context(Redactor(), docker=docker, container=facts, inside=inside)
    return dict(capture(context, [InsideCollector(5.0)]).facts["inside"])


def test_a_running_container_is_asked_by_the_likeliest_interpreter() -> None:
    asked: list[str] = []

    def program(argv: object) -> Ran:
        asked.append(list(argv)[2])  # type: ignore[call-overload]
        return Ran(0, f"{TOLD}{TORCH}") if asked[-1] == "python3" else Ran(127, "not found")

    facts = container(FakeDocker(program=program), running=True)
    assert asked == [sys.executable, "python3"]
    assert (facts["vllm"].value, facts["cuda"].value, facts["gpus"].value) == ("0.29.0", "13.0", 8)


def test_an_ended_container_is_asked_only_on_request_and_without_gpu_or_socket() -> None:
    docker = FakeDocker(images=[image_facts(IMAGE_ID)], program=lambda _: Ran(0, TOLD))
    assert "--inside" in container(docker, running=False)["vllm"].reason
    assert docker.asides == []
    facts = container(docker, running=False, inside=True)
    assert facts["vllm"].value == "0.29.0"
    assert "not imported" in facts["cuda"].reason
    (aside,) = docker.asides
    assert aside.image_id == IMAGE_ID
    assert aside.binds == ("/src/vllm:/vllm:ro", "cache:/cache:ro")


def test_a_container_without_any_python_says_what_it_said() -> None:
    facts = container(FakeDocker(program=lambda _: Ran(127, "exec: python3: not found")), running=True)
    assert "gave no answer (exit code 127)" in facts["vllm"].reason
    assert "python3: not found" in facts["vllm"].reason
