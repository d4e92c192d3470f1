"""How many GPUs a command asks for."""

from __future__ import annotations

from repro.domain.command.command import Command
from repro.domain.command.whole_numbers import as_int

_FACTORS = ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")


def gpu_count(command: Command) -> int:
    """GPUs of the whole server over all its nodes: TP x PP x DP. A size that is no number counts as one."""
    count = 1
    for name in _FACTORS:
        value = command.flag(name)
        size = as_int(value) if isinstance(value, str) else None
        count *= size if size and size > 0 else 1
    return count
