"""The vLLM process: how it was started, what it listens on, which GPU libraries it has really mapped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from repro.domain.fingerprint import Fact
from repro.machine.processes import ProcessFacts, describe
from repro.snapshot.collector import Context, attempt

_LIBRARIES = re.compile(r"/lib(?:cuda|cudart|nccl|cublas|cublasLt|cudnn|nvidia-ml|gomp|tcmalloc[a-z_]*)\.so[^/]*$")


class ProcessCollector:
    """Facts of one process by pid; argv and environment are those of its start."""

    name = "process"
    deadline = 10.0
    fields = ("pid", "argv", "environment", "cwd", "started", "parent", "children", "ports", "libraries")

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`started` in Unix seconds; `libraries` as paths of mapped files."""
        if context.pid is None:
            return dict.fromkeys(self.fields, Fact.unavailable("no process was named"))
        facts, redactor = describe(context.pid), context.redactor
        return {
            "pid": Fact.measured(context.pid),
            "argv": _fact(facts, "argv", list(redactor.argv(facts.argv or ()))),
            "environment": _fact(facts, "environment", redactor.environment(facts.environment or {})),
            "cwd": _fact(facts, "cwd", redactor.text(facts.cwd or "")),
            "started": Fact.measured(facts.started) if facts.alive else Fact.unavailable(facts.unreadable["argv"]),
            "parent": _fact(facts, "parent", facts.parent),
            "children": _fact(facts, "children", _commands(facts)),
            "ports": _fact(facts, "ports", list(facts.ports or ())),
            "libraries": attempt(lambda: _mapped_libraries(context.root / "proc" / str(context.pid) / "maps")),
        }


def _fact(facts: ProcessFacts, field: str, value: object) -> Fact:
    reason = facts.unreadable.get(field)
    return Fact.unavailable(reason) if reason else Fact.measured(value)


def _commands(facts: ProcessFacts) -> list[dict[str, object]]:
    """The children by pid and the first word of their argv (vLLM's workers name themselves there)."""
    return [{"pid": pid, "name": (describe(pid).argv or ("?",))[0]} for pid in facts.children or ()]


def _mapped_libraries(maps: Path) -> list[str]:
    with maps.open(encoding="utf-8", errors="backslashreplace") as lines:
        paths = {line.rstrip("\n").split(maxsplit=5)[-1] for line in lines if "/" in line}
    return sorted(path for path in paths if _LIBRARIES.search(path))
