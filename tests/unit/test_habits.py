"""Habits that no linter here holds, or that a `noqa` could switch off: sizes, leftovers, shells, this machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
CODE = ("repro", "tests", ".ci")
TEXT_SUFFIXES = {".py", ".toml", ".md", ".sh", ".yaml", ".yml", ".json", ".cfg", ".txt", ""}
MOST_LINES = 400
MOST_FUNCTION_LINES = 60
DATA_TABLES = {"flag_table.py"}  # one row a vLLM flag: as long as vLLM's command line is
# Put together here, so that this file does not break its own rule.
LEFTOVERS = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")
# (module, function) that give a text to a shell.
SHELLS = {
    ("os", "system"),
    ("os", "popen"),
    ("subprocess", "getoutput"),
    ("subprocess", "getstatusoutput"),
    ("asyncio", "create_subprocess_shell"),
}
# Parents of a checkout that files may name for reasons of their own.
SHARED_PARENTS = {Path("/"), Path("/tmp"), Path("/home"), Path("/root"), Path("/opt"), Path("/srv"), Path("/usr/src")}


def python_files(root: Path, *folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((root / folder).rglob("*.py"))


def text_files(root: Path) -> Iterator[Path]:
    """The project's own text: not environments, caches, builds, or logs that were recorded elsewhere."""
    yield from (path for path in sorted(root.iterdir()) if path.is_file() and path.suffix in TEXT_SUFFIXES)
    for folder in (*CODE, "baselines", "scenarios", "docs", ".ci"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts:
                yield path


def long_files(root: Path) -> list[str]:
    counts = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in python_files(root, "repro")}
    return [f"{file} has {n} lines" for file, n in counts.items() if n > MOST_LINES and file.name not in DATA_TABLES]


def long_functions(root: Path) -> list[str]:
    return [
        f"{file}:{node.lineno} {node.name} has {(node.end_lineno or 0) - node.lineno + 1} lines"
        for file in python_files(root, "repro")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > MOST_FUNCTION_LINES
    ]


def leftovers(root: Path) -> list[str]:
    """Notes to oneself, and functions that say they are not written; the exception's name as a text is no stub."""
    wrong = []
    for file in python_files(root, *CODE):
        text = file.read_text(encoding="utf-8")
        lines = enumerate(text.splitlines(), start=1)
        wrong += [f"{file}:{number} {line.strip()}" for number, line in lines if LEFTOVERS.search(line)]
        wrong += [
            f"{file}:{node.lineno} raises NotImplementedError"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Raise)
            and any(isinstance(part, ast.Name) and part.id == "NotImplementedError" for part in ast.walk(node))
        ]
    return wrong


def shells(root: Path) -> list[str]:
    """Calls that hand text to a shell, by whatever module they are reached."""
    wrong = []
    for file in python_files(root, *CODE):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.keyword(arg="shell", value=value) if not is_false(value):
                    wrong.append(f"{file}:{value.lineno} shell=")
                case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in SHELLS:
                    wrong.append(f"{file}:{node.lineno} {module}.{name}")
                case ast.ImportFrom(module=str(module), names=names):
                    wrong += [f"{file}:{node.lineno} {alias.name}" for alias in names if (module, alias.name) in SHELLS]
    return wrong


def is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def names_of_this_machine(root: Path, home: Path) -> list[str]:
    """Text that names the folder a checkout happens to lie in (`home`), or what lies beside it."""
    places = [home] if home.parent in SHARED_PARENTS else [home, home.parent]
    here = re.compile(r"(?<![\w.~-])(" + "|".join(re.escape(str(place)) for place in places) + r")(?=/\w)")
    return [
        f"{file}:{number} {line.strip()}"
        for file in text_files(root)
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if here.search(line)
    ]


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "long files": long_files,
    "long functions": long_functions,
    "leftovers": leftovers,
    "shells": shells,
    "names of this machine": lambda root: names_of_this_machine(root, root),
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_house_keeps_its_habits(check: str) -> None:
    problems = CHECKS[check](REPO)
    assert not problems, "\n".join(problems)


BODY = "    x = 1\n"
PLANTED = [
    ("long files", "repro/a.py", "x = 1\n" * (MOST_LINES + 1)),
    ("long functions", "repro/a.py", "def f():\n" + BODY * MOST_FUNCTION_LINES),
    ("long functions", "repro/a.py", "async def f():\n" + BODY * MOST_FUNCTION_LINES),
    ("leftovers", "repro/a.py", "x = 1  # TO" + "DO later\n"),
    ("leftovers", "tests/unit/a.py", "raise NotImplementedError\n"),
    ("leftovers", "repro/a.py", "def f():\n    raise NotImplementedError('later')\n"),
    ("shells", "repro/a.py", "import subprocess\nsubprocess.run('ls', shell=True)\n"),
    ("shells", "repro/a.py", "run(f'ls {x}', shell=flag)\n"),
    ("shells", ".ci/a.py", "import os\nos.system('ls')\n"),
    ("shells", "repro/a.py", "from os import popen\n"),
    ("shells", "repro/a.py", "async def f():\n    await asyncio.create_subprocess_shell('ls')\n"),
]
KEPT = [
    ("long files", "repro/domain/command/flag_table.py", "x = 1\n" * (MOST_LINES + 1)),
    ("long files", "repro/a.py", "x = 1\n" * MOST_LINES),
    ("long functions", "repro/a.py", "def f():\n" + BODY * (MOST_FUNCTION_LINES - 1)),
    ("leftovers", "repro/a.py", "name = 'todo-list'\n"),
    ("leftovers", "repro/a.py", "seen = line.startswith('NotImplementedError')\n"),
    ("shells", "repro/a.py", "subprocess.run(['ls'], shell=False)\n"),
]


def plant(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("check", "name", "text"), PLANTED)
def test_a_planted_bad_habit_is_seen(tmp_path: Path, check: str, name: str, text: str) -> None:
    plant(tmp_path, name, text)
    assert len(CHECKS[check](tmp_path)) == 1


@pytest.mark.parametrize(("check", "name", "text"), KEPT)
def test_what_is_allowed_is_not_reported(tmp_path: Path, check: str, name: str, text: str) -> None:
    plant(tmp_path, name, text)
    assert CHECKS[check](tmp_path) == []


def test_a_path_of_the_building_machine_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, "repro/a.py", "beside = '/builds/team/notes/x'\ninside = '/builds/team/tree/y'\n")
    plant(tmp_path, "Makefile", "fine:\n\tcp /srv/builds/team/x my/builds/team/x\n")
    assert len(names_of_this_machine(tmp_path, Path("/builds/team/tree"))) == 2


def test_a_checkout_in_a_shared_folder_forbids_only_itself(tmp_path: Path) -> None:
    plant(tmp_path, "repro/a.py", "cache = '/tmp/cache'\ninside = '/tmp/tree/y'\n")
    assert len(names_of_this_machine(tmp_path, Path("/tmp/tree"))) == 1
