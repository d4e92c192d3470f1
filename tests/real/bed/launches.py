"""Counts every launch of the real vLLM, also those that repro makes itself.

The choice: tests are handed a program called `vllm` that writes one line into a ledger and then *becomes* the real one
(exec: same process id, and from then on the argument list that the real program has anyway). Paths are written into
the script, not taken from the environment, since repro starts servers with an environment of its own making. Only
`serve` counts; `vllm --version` is no launch.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

BUDGET_VARIABLE = "REPRO_REAL_LAUNCH_BUDGET"
DEFAULT_BUDGET = 40
SCRIPT = """#!/bin/sh
[ "$1" = serve ] && printf '%s %s\\n' "$$" "$*" >> {ledger}
exec {program} "$@"
"""


class Ledger:
    """One run's launches. `program` is what the tests start."""

    def __init__(self, directory: Path, real_program: Path) -> None:
        self.program = directory / "bin" / "vllm"
        self.program.parent.mkdir(parents=True, exist_ok=True)
        self.path = directory / "launches.txt"
        self.path.touch()
        text = SCRIPT.format(ledger=shlex.quote(str(self.path)), program=shlex.quote(str(real_program)))
        self.program.write_text(text)
        self.program.chmod(0o755)

    def lines(self) -> list[str]:
        """One line a launch, in order: process id, then the arguments."""
        return self.path.read_text().splitlines()

    @property
    def count(self) -> int:
        return len(self.lines())


def budget() -> int:
    """How many launches one run of the tests may use."""
    return int(os.environ.get(BUDGET_VARIABLE) or DEFAULT_BUDGET)
