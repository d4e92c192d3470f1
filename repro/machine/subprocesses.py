"""Run a short program to its end: an argument list, never a shell, with a time limit.

Each program gets a process group of its own and the whole group is killed when the time is over, so that a helper it
started does not live on. What it had printed until then is returned.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from repro.errors import MissingProgram

# After the kill, the pipes close at once unless a process that left the group holds them; nobody waits for that one.
_DRAIN_SECONDS = 2.0


@dataclass(frozen=True)
class Completed:
    """How a program ended. `code` is negative for a signal and None when it was killed for its time limit."""

    argv: tuple[str, ...]
    code: int | None
    stdout: str
    stderr: str
    timed_out: bool
    seconds: float

    @property
    def succeeded(self) -> bool:
        return self.code == 0


def run(
    argv: Sequence[str],
    timeout: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    input: str | None = None,
) -> Completed:
    """Run `argv` for at most `timeout` seconds. `env` replaces the environment. Output is decoded leniently.

    Raises MissingProgram when there is no such program, or it may not be executed.
    """
    begun = time.monotonic()
    try:
        process = subprocess.Popen(
            list(argv),
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise _why_not_started(argv[0], env, cwd, error) from error
    timed_out = False
    try:
        out, err = process.communicate(None if input is None else input.encode(), timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        out, err = _kill_and_drain(process)
    except BaseException:
        _kill_and_drain(process)
        raise
    return Completed(
        argv=tuple(argv),
        code=None if timed_out else process.returncode,
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
        timed_out=timed_out,
        seconds=time.monotonic() - begun,
    )


def _kill_and_drain(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        return process.communicate(timeout=_DRAIN_SECONDS)
    except subprocess.TimeoutExpired as held:
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait(_DRAIN_SECONDS)
        return held.output or b"", held.stderr or b""


def _why_not_started(program: str, env: Mapping[str, str] | None, cwd: Path | None, error: OSError) -> Exception:
    if cwd is not None and not cwd.is_dir():
        return error
    search_path = None if env is None else env.get("PATH", os.defpath)
    if shutil.which(program, path=search_path) is None or isinstance(error, (FileNotFoundError, PermissionError)):
        return MissingProgram(
            f"Cannot start {program!r}: {error.strerror or error}.",
            "Install it, or give its full path.",
        )
    return error
