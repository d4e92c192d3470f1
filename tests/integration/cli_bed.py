"""A folder in which repro's command line is run against the simulator, and what must be true of it afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.machine.clock import SystemClock
from repro.machine.family import end_family, find_family
from repro.runner.record import open_records

PATIENCE_S = 40.0
FAULTS = "REPRO_SIMULATOR_FAULTS"
STARTUP = "REPRO_SIMULATOR_STARTUP_SECONDS"
# What the simulator itself reads belongs to both ends; prefix caching stays as production has it unless a test asks.
RECIPE = f"""
schema = "repro/recipe"
version = 1
name = "bed"
title = "The simulator in tests"
fits_one_node = false

[required]
as_production = ["--enable-prefix-caching"]
environment_as_production = ["{FAULTS}", "{STARTUP}"]

[minimal_request]
input_tokens = 64
max_tokens = 2
concurrency = 1
"""
LONG_PROMPTS = {"stage": "serving", "family": "illegal_memory_access", "when": "input_tokens >= 300"}
MANY_SEQUENCES = {"stage": "engine_init", "family": "oom_gpu", "when": "flag('--max-num-seqs') == 64"}


@dataclass(frozen=True)
class Done:
    """A command line that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.stdout)
        return loaded


@dataclass
class Bed:
    """`folder` is where repro is run; its workspace is `.repro` there."""

    folder: Path
    begun: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / ".repro").mkdir()  # or one above this folder would be found
        (self.folder / "bed.toml").write_text(RECIPE)
        self.faults()

    def faults(self, *faults: Mapping[str, Any]) -> None:
        """What goes wrong from now on; the file's path, and so the scene, stays the same."""
        (self.folder / "faults.json").write_text(json.dumps({"fault": faults}))

    def vllm(self, *flags: str, startup: str = "0.05") -> tuple[str, ...]:
        """A production command on the simulator, with the environment that it is given."""
        words = (f"{FAULTS}={self.folder / 'faults.json'}", f"{STARTUP}={startup}")
        caching = () if any("prefix-caching" in flag for flag in flags) else ("--no-enable-prefix-caching",)
        return (*words, sys.executable, "-m", "repro.simulator", "serve", "moonshotai/Kimi-K3", *caching, *flags)

    def search(self, *options: str, flags: Sequence[str] = ()) -> tuple[str, ...]:
        """The words of a quick `repro bisect`."""
        recipe = ("--recipe", "bed.toml", "--precision", "0.2")
        return ("bisect", *recipe, *options, "--", *self.vllm(*flags))

    def environment(self, **changed: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        return {**kept, **changed}

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """repro with these words, in a process group of its own as in a terminal."""
        process = subprocess.Popen(
            [sys.executable, "-m", "repro", *words],
            cwd=self.folder,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(self.folder / "stderr.txt").open("w"),
            text=True,
            start_new_session=True,
        )
        self.begun.append(process)
        return process

    def end(self, process: subprocess.Popen[str], seconds: float = PATIENCE_S) -> Done:
        out, _ = process.communicate(timeout=seconds)
        return Done(process.returncode, out, (self.folder / "stderr.txt").read_text())

    def repro(self, *words: str, **environment: str) -> Done:
        """Runs to the end."""
        return self.end(self.start(*words, **environment))

    def resume(self, *options: str) -> Done:
        return self.repro("bisect", "--resume", "--json", *options)

    @property
    def session(self) -> Path:
        """The only session there is."""
        (folder,) = (self.folder / ".repro" / "sessions").iterdir()
        return folder

    @property
    def events(self) -> list[dict[str, Any]]:
        """The whole events of its journal."""
        lines = (self.session / "journal.jsonl").read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def count(self, event: str) -> int:
        return sum(e["event"] == event for e in self.events)

    def wait_said(self, process: subprocess.Popen[str], text: str) -> None:
        """Until the running repro has said this on stderr."""
        stderr = self.folder / "stderr.txt"
        until(lambda: text in stderr.read_text() or process.poll() is not None, text)
        assert text in stderr.read_text(), stderr.read_text()

    def servers(self) -> list[int]:
        """Pids of servers that this workspace's repro started and that still live."""
        records = open_records(self.folder / ".repro" / "servers")
        return [ref.pid for record in records for ref in find_family(record.signs)]

    def close(self) -> None:
        """Ends what a failed test left: each repro that it began, then each server on record."""
        for process in self.begun:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(PATIENCE_S)
            if process.stdout is not None:
                process.stdout.close()
        for record in open_records(self.folder / ".repro" / "servers"):
            end_family(record.signs, SystemClock(), 0.1)


def until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)
