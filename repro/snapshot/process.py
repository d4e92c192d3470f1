"""The vLLM process: how it was started, what it listens on, which GPU libraries it and its workers have really mapped.

The API server maps no CUDA library; its engine and workers do, so the whole family is read. What counts is the mapped
file: the package that is installed and the library that was loaded can differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.domain.fingerprint import Fact
from repro.machine.processes import ProcessFacts, describe
from repro.snapshot.collector import Context, attempt, reason_of

_LIBRARIES = re.compile(
    r"/lib(?P<name>cuda|cudart|nccl|cublas|cublasLt|cudnn|cufile|nvrtc|nvidia-ml|nvidia-ptxjitcompiler|amdhip64|rccl|"
    r"ibverbs|mlx5|gomp|iomp5|tcmalloc[a-z_]*|jemalloc)(?:-[0-9a-f]+)?\.so[^/]*$"
)
_COMPAT = re.compile(r"/compat(?:-[\d.]+)?/|/forward-compat/")
_DELETED = " (deleted)"


class ProcessCollector:
    """Facts of one process by pid; argv and environment are those of its start."""

    name = "process"
    deadline = 10.0
    fields = (
        "pid",
        "argv",
        "environment",
        "cwd",
        "started",
        "parent",
        "children",
        "ports",
        "libraries",
        "library_path",
        "preload",
    )

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`started` in Unix seconds. `libraries`: [{name, path, compat, deleted, pids}]; `compat` is a library of a
        CUDA forward-compatibility folder, `deleted` one whose file was replaced since it was loaded.
        """
        if context.pid is None:
            return dict.fromkeys(self.fields, Fact.unavailable("no process was named"))
        facts, redactor = describe(context.pid), context.redactor
        environment = facts.environment or {}
        return {
            "pid": Fact.measured(context.pid),
            "argv": _fact(facts, "argv", list(redactor.argv(facts.argv or ()))),
            "environment": _fact(facts, "environment", redactor.environment(environment)),
            "cwd": _fact(facts, "cwd", redactor.text(facts.cwd or "")),
            "started": Fact.measured(facts.started) if facts.alive else Fact.unavailable(facts.unreadable["argv"]),
            "parent": _fact(facts, "parent", facts.parent),
            "children": _fact(facts, "children", _commands(facts, context)),
            "ports": _fact(facts, "ports", list(facts.ports or ())),
            "libraries": mapped_libraries((context.pid, *(facts.children or ())), context.root),
            "library_path": _fact(facts, "environment", redactor.text(environment.get("LD_LIBRARY_PATH", "")) or None),
            "preload": _fact(facts, "environment", redactor.text(environment.get("LD_PRELOAD", "")) or None),
        }


def mapped_libraries(pids: Sequence[int], root: Path) -> Fact:
    """The libraries of a family of processes by path; unavailable when the first of them cannot be read."""
    found: dict[str, list[int]] = {}
    unread: list[str] = []
    for pid in pids:
        try:
            for path in set(_library_paths(root / "proc" / str(pid) / "maps")):
                found.setdefault(path, []).append(pid)
        except OSError as error:
            if pid == pids[0]:
                return Fact.unavailable(reason_of(error))
            unread.append(str(pid))
    how = f"without processes {', '.join(unread)}, which cannot be read" if unread else ""
    return Fact.measured([_library(path, pids) for path, pids in sorted(found.items())], how)


def _library(mapped: str, pids: list[int]) -> dict[str, Any]:
    path = mapped.removesuffix(_DELETED)
    match = _LIBRARIES.search(path)
    return {
        "name": f"lib{match['name']}" if match else path,
        "path": path,
        "compat": _COMPAT.search(path) is not None,
        "deleted": mapped.endswith(_DELETED),
        "pids": sorted(pids),
    }


def _fact(facts: ProcessFacts, field: str, value: object) -> Fact:
    reason = facts.unreadable.get(field)
    return Fact.unavailable(reason) if reason else Fact.measured(value)


def _commands(facts: ProcessFacts, context: Context) -> list[dict[str, object]]:
    """The children by pid and the first word of their argv (vLLM's workers name themselves there)."""
    shown = []
    for pid in facts.children or ():
        child = attempt(lambda pid=pid: (describe(pid).argv or ("?",))[0])  # type: ignore[misc]
        shown.append({"pid": pid, "name": context.redactor.text(str(child.value or "?"))})
    return shown


def _library_paths(maps: Path) -> Iterator[str]:
    with maps.open(encoding="utf-8", errors="backslashreplace") as lines:
        for line in lines:
            if ".so" in line and "/" in line:
                path = line.rstrip("\n").split(maxsplit=5)[-1]
                if _LIBRARIES.search(path.removesuffix(_DELETED)):
                    yield path
