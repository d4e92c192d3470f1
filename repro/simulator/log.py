"""Writes lines as vLLM does: process prefix, level, clock, origin; several lines of one record end in CR LF but the
last. Callers write 0.32's lines; the dialect says what the version in force makes of them.

The engine and worker processes of the stand-in do not exist; their process numbers are made up (above the kernel's
usual limit) so that nobody who takes a number from the log can hit a stranger.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from repro.simulator.arguments import ServeArguments
from repro.simulator.dialect import NEWEST, Dialect
from repro.simulator.traceback_frames import Frame

_FIRST_INVENTED_PID = 4_200_000
PACKAGES = "/usr/local/lib/python3.12/dist-packages"


class Log:
    """The one writer to standard output; every call writes whole lines at once."""

    def __init__(
        self,
        arguments: ServeArguments,
        dialect: Dialect = NEWEST,
        clock: Callable[[], float] = time.time,
        rust_frontend: bool = False,
    ) -> None:
        """`rust_frontend`: the front end in Rust was asked for; a version that has none takes no notice."""
        self.rust_frontend = rust_frontend and dialect.rust
        self.dialect = dialect
        self._clock = clock
        self._lock = threading.Lock()
        self._groups_formed = False
        self._arguments = arguments
        self._engine = dialect.engine_of(int(arguments.value("data_parallel_size")) > 1)
        self.pid = os.getpid()

    @property
    def local_ranks(self) -> range:
        """The ranks on this node, by --nnodes and --node-rank."""
        count = max(self._arguments.world_size // max(int(self._arguments.value("nnodes")), 1), 1)
        first = int(self._arguments.value("node_rank")) * count
        return range(first, first + count)

    @property
    def has_workers(self) -> bool:
        return self._arguments.world_size > 1

    def groups_formed(self) -> None:
        """From here on a worker's prefix carries its ranks, as in vLLM."""
        self._groups_formed = True

    @property
    def headless(self) -> bool:
        """Whether this is a further node: workers under a main process, neither engine nor API server."""
        return bool(self._arguments.value("headless"))

    def api(self, level: str, origin: str, text: str) -> None:
        self._record(self._api_prefix, level, origin, text)

    def engine(self, level: str, origin: str, text: str) -> None:
        if self.headless:
            return self.api(level, origin, text)
        return self._record(self._engine_prefix, level, origin, text)

    def worker(self, level: str, origin: str, text: str, rank: int | None = None) -> None:
        """A line of one worker (this node's first by default); the engine's own where it has no worker processes."""
        if not self.has_workers:
            return self.engine(level, origin, text)
        rank = self.local_ranks[0] if rank is None else rank
        return self._record(self._prefix(self.worker_name(rank), self.worker_pid(rank)), level, origin, text)

    def worker_name(self, rank: int) -> str:
        if not (self._groups_formed and self.dialect.worker_named):
            return self.dialect.worker_first.format(rank=rank)
        tensor = int(self._arguments.value("tensor_parallel_size"))
        parts = ["Worker"]
        parts += ["DP0"] if int(self._arguments.value("data_parallel_size")) > 1 else []
        parts += [f"PP{rank // tensor}"] if int(self._arguments.value("pipeline_parallel_size")) > 1 else []
        parts += [f"TP{rank % tensor}"] if tensor > 1 else []
        parts += [f"EP{rank}"] if self._arguments.value("enable_expert_parallel") else []
        return "_".join(parts)

    @property
    def engine_name(self) -> str:
        return self._engine

    @property
    def engine_pid(self) -> int:
        return _FIRST_INVENTED_PID

    def worker_pid(self, rank: int) -> int:
        return _FIRST_INVENTED_PID + 10 + rank

    def api_output(self, text: str) -> None:
        """What the API server prints past its logger: uvicorn's lines, an uncaught traceback."""
        self._output(self._api_prefix, text)

    def rust(self, level: str, origin: str, text: str) -> None:
        """A line of the Rust front end."""
        self._record(self._prefix("RustFrontend", _FIRST_INVENTED_PID - 1), level, origin, text)

    def access(self, text: str) -> None:
        """uvicorn's line of one request; the Rust front end prints none."""
        if not self.rust_frontend:
            self.api_output(text)

    def engine_output(self, text: str) -> None:
        """What the engine prints past its logger: an uncaught traceback."""
        self._output(self._engine_prefix, text)

    def worker_output(self, text: str) -> None:
        """What this node's first worker prints past its logger: progress bars."""
        first = self.local_ranks[0]
        prefix = self._prefix(self.worker_name(first), self.worker_pid(first))
        self._output(prefix if self.has_workers else self._engine_prefix, text)

    def bare(self, text: str) -> None:
        """A line without any prefix in every version: what libraries print."""
        with self._lock:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    @property
    def _api_prefix(self) -> str:
        name = "MainProcess" if self.headless else "APIServer"
        return self._prefix(name, self.pid) if self.dialect.prefixed else ""

    @property
    def _engine_prefix(self) -> str:
        return self._prefix(self._engine, _FIRST_INVENTED_PID) if self.dialect.prefixed else ""

    def _prefix(self, name: str, pid: int) -> str:
        if not name:
            return ""
        return f"\x1b[0;36m({name} pid={pid})\x1b[0;0m " if self.dialect.colour else f"({name} pid={pid}) "

    def _output(self, prefix: str, text: str) -> None:
        self.bare("\n".join(prefix + line for line in text.split("\n")) if self.dialect.wrapped else text)

    def _record(self, prefix: str, level: str, origin: str, text: str) -> None:
        said = self.dialect.said(level, origin, text, self._arguments.model)
        if said is None:
            return
        clock = time.strftime("%m-%d %H:%M:%S", time.localtime(self._clock()))
        head = f"{prefix}{said[0]} {clock} [{said[1]}] "
        self.bare("\r\n".join(head + line for line in said[2].split("\n")))


def traceback_text(frames: Sequence[Frame], root: str) -> str:
    """A Python traceback; frames from the outermost to the innermost, then the exception's own lines."""
    lines = ["Traceback (most recent call last):"]
    for path, number, function, code in frames:
        place = path if path.startswith("/") else f"{PACKAGES}/{path}"
        lines += [f'  File "{place}", line {number}, in {function}', f"    {code}"]
    return "\n".join([*lines, root])
