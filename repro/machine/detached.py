"""Starts a long-running program that shares nothing with repro: a session of its own, no input, output into a file.

What it prints goes through no pipe, so it neither blocks nor breaks when repro stops reading or is killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from repro.errors import MissingProgram


class DetachedProcess:
    """A started program; it leads its own session and process group."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def code(self) -> int | None:
        """Its exit code, negative for the signal that ended it; None while it runs."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send it, and it alone, a signal; nothing happens if it has ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)


def must_exist(program: str, env: Mapping[str, str], cwd: Path | None) -> None:
    """Raises MissingProgram unless `program` can be found as the child would: on its PATH, or from its folder."""
    sought = str(Path(cwd or ".") / program) if "/" in program else program
    if shutil.which(sought, path=env.get("PATH", os.defpath)) is None:
        raise MissingProgram(
            f"There is no program {program!r} here that can be executed.",
            "Install it, or give its full path; it is looked up on the PATH that the server gets.",
        )


def start_detached(argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, output: IO[bytes]) -> DetachedProcess:
    """Start `argv` with exactly this environment, standard output and error into `output`. Raises MissingProgram."""
    try:
        process = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise MissingProgram(
            f"{argv[0]!r} could not be started: {error.strerror or error}.", "Try to start it by hand."
        ) from error
    return DetachedProcess(process)
