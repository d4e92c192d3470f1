"""What a user installs: the wheel of this checkout, in an environment of its own, away from the checkout.

Dependencies are borrowed from the environment that runs the tests, so that nothing is fetched and only repro is
new.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from repro import __version__
from repro.cli.lazy import COMMANDS

REPO = Path(__file__).resolve().parents[2]
# A script beside CI and no package: loaded by its path.
_SPEC = spec_from_file_location("wheelhouse", REPO / ".ci" / "wheelhouse.py")
assert _SPEC is not None
assert _SPEC.loader is not None
wheelhouse = module_from_spec(_SPEC)
_SPEC.loader.exec_module(wheelhouse)
DATA = ("baselines", "scenarios")
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def run(arguments: Sequence[str | Path], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command without this run's own Python and pip settings, plus the given variables."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_"))}
    return subprocess.run(
        arguments, cwd=cwd, env=environment | variables, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, REPO], cwd=folder)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def members(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def bin_folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin/ of a clean environment with the wheel installed and the dependencies on its path."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    asked = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], cwd=folder)
    # A plain path in a .pth file: the editable installation that may lie there is not followed.
    (Path(asked.stdout.strip()) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    installed = run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel], cwd=folder)
    assert installed.returncode == 0, installed.stderr
    return folder / "bin"


@pytest.mark.parametrize("folder", DATA)
def test_the_data_that_users_read_is_in_the_wheel(members: set[str], folder: str) -> None:
    files = [path for path in (REPO / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert files, f"{folder}/ holds nothing"
    assert {f"repro/data/{path.relative_to(REPO).as_posix()}" for path in files} <= members


def test_the_wheel_holds_the_package_and_nothing_else(members: set[str]) -> None:
    sources = {path.relative_to(REPO).as_posix() for path in (REPO / "repro").rglob("*.py")}
    assert {*sources, "repro/py.typed"} <= members
    assert {name.split("/")[0] for name in members} == {"repro", f"vllm_repro-{__version__}.dist-info"}
    assert f"vllm_repro-{__version__}.dist-info/licenses/LICENSE" in members


def test_the_installed_package_is_the_wheels_own(bin_folder: Path, tmp_path: Path) -> None:
    done = run([bin_folder / "python", "-c", "import repro; print(repro.__file__)"], cwd=tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(bin_folder.parent), done.stdout + done.stderr


@pytest.mark.parametrize("kind", DATA)
def test_the_installed_package_finds_its_own_data(bin_folder: Path, tmp_path: Path, kind: str) -> None:
    program = (
        f"from repro.recipe.find import data_folder; print(*sorted(data_folder({kind!r}).glob('*.toml')), sep='\\n')"
    )
    done = run([bin_folder / "python", "-c", program], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = [Path(line) for line in done.stdout.splitlines()]
    assert [path.name for path in found] == sorted(path.name for path in (REPO / kind).glob("*.toml"))
    assert all(path.is_relative_to(bin_folder.parent) for path in found)


def test_the_command_says_its_version(bin_folder: Path, tmp_path: Path) -> None:
    done = run([bin_folder / "repro", "--version"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert __version__ in done.stdout


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=["repro", *COMMANDS])
def test_every_command_helps(bin_folder: Path, tmp_path: Path, command: list[str]) -> None:
    done = run([bin_folder / "repro", *command, "--help"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: repro")


def test_the_installed_command_knows_the_files_it_reads(bin_folder: Path, tmp_path: Path) -> None:
    done = run([bin_folder / "repro", "schema", "scenario"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["type"] == "object"


def unpack(wheel: Path, folder: Path, python: str = THIS_PYTHON) -> Path:
    """Packs a wheelhouse of repro's wheel alone and unpacks it as its user does."""
    tar = wheelhouse.pack(wheel.parent, folder, python, sysconfig.get_platform())
    done = run(["tar", "xf", tar], cwd=folder)
    assert done.returncode == 0, done.stderr
    packed: Path = folder / tar.stem
    return packed


def install(wheels: Path, target: Path) -> subprocess.CompletedProcess[str]:
    return run([wheels / "install.sh", target], cwd=wheels, PYTHON=sys.executable)


def test_a_wheelhouse_is_named_after_what_it_fits(wheel: Path, tmp_path: Path) -> None:
    name = f"vllm-repro-wheelhouse-{__version__}-py{THIS_PYTHON}-{sysconfig.get_platform()}"
    assert unpack(wheel, tmp_path).name == name


def test_the_same_wheels_give_the_same_tar(wheel: Path, tmp_path: Path) -> None:
    first, second = (wheelhouse.pack(wheel.parent, tmp_path / day, "3.12", "linux-x86_64") for day in ("1", "2"))
    assert first.read_bytes() == second.read_bytes()


def test_a_wheelhouse_for_another_python_is_refused_before_anything_is_made(wheel: Path, tmp_path: Path) -> None:
    refused = install(unpack(wheel, tmp_path, python="3.9"), tmp_path / "target")
    assert refused.returncode == 1
    assert f"for Python 3.9 on {sysconfig.get_platform()}" in refused.stderr
    assert not (tmp_path / "target").exists()


def test_a_damaged_wheelhouse_is_refused_before_anything_is_made(wheel: Path, tmp_path: Path) -> None:
    wheels = unpack(wheel, tmp_path)
    with next((wheels / "wheels").glob("*.whl")).open("ab") as damaged:
        damaged.write(b"x")
    refused = install(wheels, tmp_path / "target")
    assert refused.returncode == 1
    assert "damaged or missing: wheels/vllm_repro-" in refused.stderr
    assert not (tmp_path / "target").exists()


def test_a_folder_that_exists_is_left_alone(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "mine.txt").write_text("mine", encoding="utf-8")
    refused = install(unpack(wheel, tmp_path), target)
    assert refused.returncode == 1
    assert "exists already" in refused.stderr
    assert [path.name for path in target.iterdir()] == ["mine.txt"]
