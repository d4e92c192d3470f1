"""Holds the directions between the rooms of repro by reading its imports, without running them.

A room is the first folder below repro/. It may import itself, any room on a lower layer, errors.py and the package's
version; never a room above it or beside it. Imports inside functions and under TYPE_CHECKING count like all others: an
import that is made late still points somewhere.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]

# Everyone who writes masks secrets first, and the recipe room writes scenarios: so redact lies right above the domain.
LAYERS = {
    "domain": 0,
    "redact": 1,
    "triage": 2,
    "recipe": 2,
    "bisect": 2,
    "machine": 3,
    "runner": 4,
    "probe": 4,
    "snapshot": 4,
    "session": 4,
    "trial": 5,
    "gate": 6,
    "handoff": 6,
    "cli": 7,
}
DOMAIN_ONLY = {"bisect", "simulator"}
OPEN_TO_ALL = {"", "errors"}  # repro itself (its version) and repro.errors
ENTRY_POINT = "__main__"

# Doors to the outside: which rooms may import what. A room that is not named gets it from one that is.
GUARDED = {
    "subprocess": {"machine", "simulator"},
    "multiprocessing": {"machine", "simulator"},
    "docker": {"machine", "snapshot"},
    "pynvml": {"machine", "snapshot"},
    "git": {"session", "snapshot"},
    "httpx": {"probe"},
    "pydantic": {"recipe"},
    "pydantic_core": {"recipe"},
}
ONE_MODULE_ONLY = {"httpx"}
# Rooms that only compute: everything from outside is given to them, so that the same answers always lead the same way.
PURE = {"domain", "bisect", "redact"}
IMPURE_MODULES = {"os", "time", "socket", "tempfile", "secrets", "uuid", "asyncio", "logging", "shutil"}
IMPURE_CALLS = {"open", "print", "input"}
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
HEAVY = ("pydantic", "docker", "httpx", "git", "rich")


@dataclass(frozen=True)
class Import:
    """One imported dotted name, and where."""

    path: Path
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.target}"


def modules(root: Path) -> list[Path]:
    return sorted((root / "repro").rglob("*.py"))


def room_of(path: Path) -> str:
    """The room a file belongs to; "" for repro/__init__.py, the module's name for the other files at the top."""
    parts = path.with_suffix("").parts[1:]
    return "" if parts == ("__init__",) else parts[0]


def imports_of(root: Path, file: Path) -> Iterator[Import]:
    """Every import of a file, relative ones made absolute, and constant names given to import_module."""
    path = file.relative_to(root)
    package = path.parts[:-1]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(path, node.lineno, alias.name)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = [*package[: len(package) - level + 1]] if level else []
                base += module.split(".") if module else []
                for alias in names:
                    yield Import(path, node.lineno, ".".join([*base, alias.name]))
            case ast.Call(func=ast.Name(id="__import__" | "import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield Import(path, node.lineno, name)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                yield Import(path, node.lineno, name)


def imported_room(root: Path, target: str) -> str | None:
    """The room that an imported name belongs to, or None when it is not part of repro."""
    match target.split("."):
        case ["repro", name, *_]:
            is_module = (root / "repro" / name).is_dir() or (root / "repro" / f"{name}.py").is_file()
            return name if is_module or name in LAYERS or name == "simulator" else ""
        case ["repro"]:
            return ""
        case _:
            return None


def allowed(importer: str, imported: str) -> bool:
    if importer == imported or imported in OPEN_TO_ALL:
        return True
    if importer in OPEN_TO_ALL:
        return False
    if importer == ENTRY_POINT:
        return imported == "cli"
    if importer in DOMAIN_ONLY:
        return imported == "domain"
    return importer in LAYERS and imported in LAYERS and LAYERS[imported] < LAYERS[importer]


def wrong_directions(root: Path) -> list[str]:
    wrong = []
    for file in modules(root):
        for found in imports_of(root, file):
            imported = imported_room(root, found.target)
            if imported is not None and not allowed(room_of(found.path), imported):
                wrong.append(str(found))
    return wrong


def wrong_doors(root: Path) -> list[str]:
    wrong = []
    seen: dict[str, set[Path]] = {}
    for file in modules(root):
        for found in imports_of(root, file):
            top = found.target.split(".")[0]
            if top in GUARDED:
                seen.setdefault(top, set()).add(found.path)
                if room_of(found.path) not in GUARDED[top]:
                    wrong.append(f"{found} (only {', '.join(sorted(GUARDED[top]))} may)")
    for top in ONE_MODULE_ONLY:
        importers = sorted(map(str, seen.get(top, ())))
        if len(importers) > 1:
            wrong.append(f"{top} belongs in one module, not in {', '.join(importers)}")
    return wrong


def impure(root: Path) -> list[str]:
    wrong = []
    for file in modules(root):
        path = file.relative_to(root)
        if room_of(path) not in PURE:
            continue
        wrong += [str(found) for found in imports_of(root, file) if found.target.split(".")[0] in IMPURE_MODULES]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                    wrong.append(f"{path}:{node.lineno} calls {name}")
    return wrong


def unknown_rooms(root: Path) -> list[str]:
    known = {*LAYERS, "simulator", ENTRY_POINT, *OPEN_TO_ALL}
    paths = [file.relative_to(root) for file in modules(root)]
    return [f"{path} is in no room" for path in paths if room_of(path) not in known]


def vague_names(root: Path) -> list[str]:
    return [str(file.relative_to(root)) for file in modules(root) if VAGUE_NAMES & {file.stem, file.parent.name}]


def missing_docstrings(root: Path) -> list[str]:
    """Public modules without a docstring; names with one leading underscore are private."""
    return [
        str(file.relative_to(root))
        for file in modules(root)
        if (not file.stem.startswith("_") or file.stem.startswith("__"))
        and not ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    ]


RULES = {
    "directions": wrong_directions,
    "doors": wrong_doors,
    "purity": impure,
    "rooms": unknown_rooms,
    "names": vague_names,
    "docstrings": missing_docstrings,
}


@pytest.mark.parametrize("rule", RULES)
def test_the_house_keeps_its_rules(rule: str) -> None:
    assert len(modules(REPO)) > 10, "the rules were checked on next to nothing"
    problems = RULES[rule](REPO)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("name", sorted(ONE_MODULE_ONLY))
def test_a_library_that_may_be_replaced_has_one_door(name: str) -> None:
    importers = {
        found.path for file in modules(REPO) for found in imports_of(REPO, file) if found.target.split(".")[0] == name
    }
    assert len(importers) == 1


DOC = '"""A module."""\n'
# (rule, file, its text): each breaks exactly this rule.
PLANTED = [
    ("directions", "domain/stage.py", DOC + "import repro.triage.scan"),
    ("directions", "triage/scan.py", DOC + "from repro.recipe import load"),
    ("directions", "triage/scan.py", DOC + "from repro import recipe"),
    ("directions", "recipe/load.py", DOC + "from ..machine.process import start"),
    ("directions", "machine/process.py", DOC + "from .. import runner"),
    ("directions", "runner/start.py", DOC + "def f():\n    from repro.session import journal"),
    ("directions", "probe/client.py", DOC + "if False:\n    from repro.trial import drive"),
    ("directions", "trial/drive.py", DOC + "from repro.handoff.report import write"),
    ("directions", "gate/load.py", DOC + "from repro.handoff.report import write"),
    ("directions", "handoff/report.py", DOC + "import importlib\nimportlib.import_module('repro.cli.main')"),
    ("directions", "bisect/search.py", DOC + "from repro.triage.scan import scan"),
    ("directions", "simulator/serve.py", DOC + "from repro.triage.scan import scan"),
    ("directions", "cli/demo.py", DOC + "from repro.simulator.serve import main"),
    ("directions", "errors.py", DOC + "from repro.domain.stage import Stage"),
    ("directions", "__init__.py", DOC + "from repro.cli.main import main"),
    ("doors", "runner/start.py", DOC + "import subprocess"),
    ("doors", "handoff/rerun.py", DOC + "from subprocess import run"),
    ("doors", "cli/demo.py", DOC + "def f():\n    import httpx"),
    ("doors", "runner/box.py", DOC + "from docker.errors import NotFound"),
    ("doors", "trial/guard.py", DOC + "import pynvml"),
    ("doors", "machine/history.py", DOC + "import git"),
    ("doors", "domain/launch.py", DOC + "from pydantic import BaseModel"),
    ("purity", "bisect/search.py", DOC + "import time"),
    ("purity", "domain/stage.py", DOC + "print('stage')"),
    ("purity", "redact/mask.py", DOC + "def f(name):\n    return open(name)"),
    ("rooms", "plugins/extra.py", DOC),
    ("rooms", "tools.py", DOC),
    ("names", "runner/utils.py", DOC),
    ("names", "runner/helpers/text.py", DOC),
    ("docstrings", "runner/start.py", "import os"),
]


def plant(root: Path, name: str, text: str) -> None:
    file = root / "repro" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("rule", "name", "text"), PLANTED, ids=[f"{rule}-{name}" for rule, name, _ in PLANTED])
def test_a_planted_violation_is_seen(tmp_path: Path, rule: str, name: str, text: str) -> None:
    plant(tmp_path, name, text)
    broken = {other for other, check in RULES.items() if check(tmp_path)}
    assert broken == {rule}


def test_httpx_in_a_second_module_is_seen(tmp_path: Path) -> None:
    plant(tmp_path, "probe/client.py", DOC + "import httpx")
    assert wrong_doors(tmp_path) == []
    plant(tmp_path, "probe/metrics.py", DOC + "import httpx")
    assert len(wrong_doors(tmp_path)) == 1


def test_a_tree_that_keeps_the_rules_passes(tmp_path: Path) -> None:
    plant(tmp_path, "__init__.py", DOC + "__version__ = '1'")
    plant(tmp_path, "__main__.py", DOC + "from repro.cli.main import main")
    plant(tmp_path, "errors.py", DOC)
    plant(tmp_path, "domain/command/parse.py", DOC + "from ..stage import Stage\nfrom repro.errors import NotVllm")
    plant(tmp_path, "bisect/search.py", DOC + "from repro import errors\nfrom repro.domain import trial")
    plant(tmp_path, "machine/process.py", DOC + "import subprocess\nfrom repro import __version__\nimport repro.redact")
    plant(tmp_path, "cli/main.py", DOC + "from repro.handoff import report\nfrom repro.domain.stage import Stage")
    assert [problem for check in RULES.values() for problem in check(tmp_path)] == []


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_is_quick_because_it_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from repro.cli.main import main\n"
        f"sys.argv = ['repro', *{arguments!r}]\n"
        "try:\n    main()\n"
        f"finally:\n    print('loaded:', *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1].split() == ["loaded:"]
