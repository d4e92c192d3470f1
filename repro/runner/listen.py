"""Where a server listens: a free loopback port of our choosing, or production's own address when that is kept."""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass

from repro.domain.command import Command
from repro.errors import PortInUse, UsageError
from repro.machine.processes import PortHolder, holder_of_port
from repro.redact.redactor import Redactor

LOOPBACK = "127.0.0.1"
_VLLM_PORT = 8000  # vLLM's default of --port
_ANYWHERE = frozenset({"0.0.0.0", "::", "localhost"})  # noqa: S104 - compared with, never bound


@dataclass(frozen=True)
class Listening:
    """The command as it is started, and the address to reach it at from here."""

    command: Command
    base_url: str


def on_free_port(command: Command, address: str = LOOPBACK) -> Listening:
    """The command moved to `address` and a port that is free here; a Unix socket is taken away."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    moved = command.with_flag("--uds", None).with_flag("--host", address).with_flag("--port", str(port))
    return Listening(moved, f"{_scheme(command)}://{address}:{port}")


def as_written(command: Command) -> Listening:
    """The command untouched. Raises PortInUse, naming the holder, when its port is taken."""
    host, port = command.flag("--host"), command.flag("--port")
    try:
        number = int(port) if isinstance(port, str) else _VLLM_PORT
    except ValueError as error:
        raise UsageError(f"--port {port} is not a number.", "Give a port number from 1 to 65535.") from error
    holder = holder_of_port(number)
    if holder is not None:
        raise PortInUse(
            f"Port {number} is taken by {_named(holder)}, which repro did not start and will not stop.",
            "Stop that server yourself, or let repro choose a free port.",
        )
    reached = LOOPBACK if not isinstance(host, str) or host in _ANYWHERE else host
    if ":" in reached:
        reached = f"[{reached}]"
    return Listening(command, f"{_scheme(command)}://{reached}:{number}")


def stranger_on(port: int, family: Collection[int]) -> str | None:
    """Who listens on a port of this host and is not of the family (pids); None where nobody does or may be seen."""
    holder = holder_of_port(port)
    if holder is None or holder.pid is None or not family or holder.pid in family:
        return None
    return _named(holder)


def _scheme(command: Command) -> str:
    return "https" if command.flag("--ssl-certfile") or command.flag("--ssl-keyfile") else "http"


def _named(holder: PortHolder) -> str:
    if holder.pid is None:
        return "a process of another user"
    return f"process {holder.pid} ({' '.join(Redactor().argv(holder.argv))[:200]})"
