"""The package's own papers: what pyproject.toml promises is what repro/ is."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

import repro
from repro.recipe.find import data_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPO = Path(__file__).resolve().parents[2]
# In the standard library of newer Pythons only; the code that imports them falls back to a declared dependency.
NEWER_STANDARD_LIBRARY = {"tomllib"}
# A part that its distribution pins to one exact version, and is therefore declared with it.
PARTS = {"pydantic_core": "pydantic"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    document = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))
    section: dict[str, Any] = document["project"]
    return section


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return normal(found.group())


def outside_imports(folder: Path) -> dict[str, set[str]]:
    """Top-level names imported below `folder` that are neither ours nor the standard library's, and the files."""
    found: dict[str, set[str]] = {}
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Import(names=names):
                    tops = {alias.name.split(".")[0] for alias in names}
                case ast.ImportFrom(module=str(module), level=0):
                    tops = {module.split(".")[0]}
                case _:
                    continue
            for top in tops - sys.stdlib_module_names - NEWER_STANDARD_LIBRARY - {"repro"}:
                found.setdefault(top, set()).add(file.relative_to(folder).as_posix())
    return found


FOREIGN = {"snapshot/inside_program.py"}


def undeclared(folder: Path, dependencies: list[str]) -> dict[str, set[str]]:
    """Imports of `folder` that no declared dependency provides on this Python.

    What FOREIGN names is run by the server's own interpreter and imports what it finds there.
    """
    declared = {distribution(requirement) for requirement in dependencies}
    providers = packages_distributions()
    return {
        top: files
        for top, files in ((top, files - FOREIGN) for top, files in outside_imports(folder).items())
        if files
        and normal(PARTS.get(top, top)) not in declared
        and not declared & {normal(name) for name in providers.get(top, ())}
    }


def test_every_import_is_a_declared_dependency(project: dict[str, Any]) -> None:
    assert undeclared(REPO / "repro", project["dependencies"]) == {}


def test_an_undeclared_import_is_seen(tmp_path: Path) -> None:
    (tmp_path / "start.py").write_text("import json\nimport pytest\nfrom click.testing import CliRunner\n")
    assert undeclared(tmp_path, ["click>=8"]) == {"pytest": {"start.py"}}


def test_the_version_is_one_and_well_formed(project: dict[str, Any]) -> None:
    assert "version" in project["dynamic"], "the version is written in repro/__init__.py alone"
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", repro.__version__)


@pytest.mark.parametrize("kind", ["baselines", "scenarios"])
def test_a_checkout_reads_the_data_at_its_top(kind: str) -> None:
    assert data_folder(kind) == REPO / kind


def test_types_are_shipped() -> None:
    assert (REPO / "repro" / "py.typed").is_file()


def test_the_supported_pythons_are_the_tested_ones(project: dict[str, Any]) -> None:
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    tested = re.search(r"^PYTHONS \?= (.*)$", (REPO / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert tested
    assert project["requires-python"] == f">={declared[0]}"
    # 3.11 is the one that CI's own environment has.
    assert set(declared) == {*tested.group(1).split(), "3.11"}


def test_the_licence_is_the_declared_one(project: dict[str, Any]) -> None:
    assert project["license"] == "Apache-2.0"
    text = (REPO / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_completes_itself_in_a_shell(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.argv = ['repro']; from repro.cli.main import main; main()"],
        cwd=REPO,
        env={"PATH": "/usr/bin:/bin", "_REPRO_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "_REPRO_COMPLETE" in done.stdout, done.stderr
