"""Where processes are, for one that hangs: the innermost Python frames by py-spy where it is installed, the kernel's
word for it everywhere.

py-spy is another program and not a library of ours: it works from outside on a process that answers nobody, needs root
or the same user with ptrace allowed, and its absence only makes the answer shorter.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from repro.errors import MissingProgram
from repro.machine.processes import ProcessRef
from repro.machine.subprocesses import run

_PROGRAM = "py-spy"
_ANSWER_S = 10.0
_FRAMES = 3
# With many ranks, those asked last would make everybody wait; they hang in the same place anyway.
_MOST_STACKS = 16
_THREAD = re.compile(r'^Thread \S+ \((?P<state>[^)]*)\)(?:: "(?P<name>.*)")?')


def where_they_wait(members: Sequence[ProcessRef]) -> tuple[str, ...]:
    """A line for each process: pid, name, state, the kernel function that it sleeps in, its innermost Python frames."""
    program = shutil.which(_PROGRAM)
    lines = []
    for at, ref in enumerate(members):
        with suppress(psutil.Error):
            process = psutil.Process(ref.pid)
            parts = [f"{ref.pid} {process.name()} {process.status()}"]
            if place := _kernel_function(ref.pid):
                parts.append(f"in {place}")
            if program and at < _MOST_STACKS and (frames := _python_frames(program, ref.pid)):
                parts.append(f"at {frames}")
            lines.append(" ".join(parts))
    return tuple(lines)


def main_thread(dump: str) -> str:
    """The innermost frames of the main thread in what py-spy prints, innermost first; empty where there is none."""
    threads: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in dump.splitlines():
        if found := _THREAD.match(line):
            current = threads.setdefault(found["name"] or "", [])
        elif current is not None and line.startswith("    "):
            current.append(line.strip())
    frames = threads.get("MainThread") or next(iter(threads.values()), [])
    return " < ".join(frames[:_FRAMES])


def _python_frames(program: str, pid: int) -> str:
    try:
        done = run((program, "dump", "--pid", str(pid)), _ANSWER_S)
    except MissingProgram:
        return ""
    return main_thread(done.stdout) if done.succeeded else ""


def _kernel_function(pid: int) -> str:
    try:
        place = Path(f"/proc/{pid}/wchan").read_text().strip()
    except OSError:
        return ""
    return "" if place == "0" else place
