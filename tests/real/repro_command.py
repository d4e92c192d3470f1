"""Runs the installed `repro` on the real vLLM, as a person would: in a folder of its own, judged by its JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 840.0


@dataclass(frozen=True)
class Ran:
    """One finished command line of repro."""

    code: int
    out: str
    talk: str

    @property
    def document(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.out)
        return loaded


def arguments(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "repro", *map(str, words)]


def repro(words: Sequence[str | Path], cwd: Path, environment: Mapping[str, str]) -> Ran:
    """Runs to the end; everything that repro starts has ended with it."""
    done = subprocess.run(
        arguments(*words), cwd=cwd, env=dict(environment), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)
