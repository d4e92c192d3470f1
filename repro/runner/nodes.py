"""One launch over several nodes: the same arguments everywhere, only the rank differs, every rank a server of its own.

The nodes are network namespaces of this host (each with an address and a network stack of its own) or containers on a
Docker network. Rank 0 answers; the others run headless, as vLLM wants it.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from repro.domain.command import Command
from repro.domain.launch import Launch
from repro.errors import UsageError
from repro.machine.clock import Clock
from repro.machine.family import Activity
from repro.machine.namespaces import find_namespace
from repro.runner.docker import DockerEngine
from repro.runner.port import Ending, Engine, Place, Server, StopReport, rank_log
from repro.runner.process import ProcessEngine
from repro.triage import ExitEvidence

_INSIDE_INTERFACE = "eth0"  # how Docker calls a container's first one
_WORST_LAST = (Ending.BY_ITSELF, Ending.INTERRUPTED, Ending.TERMINATED, Ending.KILLED)


@dataclass(frozen=True)
class Node:
    """Where one rank runs: what starts it there, its address for the others, what its environment needs on top."""

    name: str
    engine: Engine
    address: str
    environment: tuple[tuple[str, str], ...] = ()


def parse_node(text: str, rank: int, clock: Clock) -> Node:
    """`netns:NAME` or `docker:NETWORK[@ADDRESS]`. Raises UsageError for anything else, or what is not there."""
    kind, _, rest = text.partition(":")
    name, _, address = rest.partition("@")
    if kind == "netns" and name and not address:
        found = find_namespace(name)
        engine = ProcessEngine(clock, place_words=found.words, address=found.address)
        return Node(text, engine, found.address, _socket_environment(found.interface, found.address))
    if kind == "docker" and name:
        alias = f"repro-node-{rank}"
        fixed = ("--ip", address) if address else ()
        network = ("--network", name, "--network-alias", alias, *fixed)
        environment = _socket_environment(_INSIDE_INTERFACE, address)
        return Node(text, DockerEngine(clock, network_words=network), address or alias, environment)
    raise UsageError(f"{text!r} is no node.", "Write netns:NAME or docker:NETWORK[@ADDRESS], once for each node.")


class NodesEngine:
    """Starts one server on each node; the first node has rank 0."""

    def __init__(self, nodes: Sequence[Node], clock: Clock) -> None:
        if len(nodes) < 2:
            raise UsageError("One node is no group.", "Name two or more nodes, or none for a server on this machine.")
        self._nodes = tuple(nodes)
        self._clock = clock

    def start(self, launch: Launch, place: Place) -> NodesServer:
        """Raises what the nodes' engines raise, having stopped what was started."""
        started: list[Server] = []
        port = _free_port()
        try:
            for rank, node in enumerate(self._nodes):
                command = rank_command(launch.command, rank, self._nodes, port)
                started.append(
                    node.engine.start(replace(launch, command=command), replace(place, log=rank_log(place.log, rank)))
                )
        except BaseException:
            for server in started:
                server.stop()
            raise
        return NodesServer(tuple(started), self._clock)


def rank_command(command: Command, rank: int, nodes: Sequence[Node], port: int) -> Command:
    """The command of one rank: production's own arguments, and where the group meets."""
    for name, value in nodes[rank].environment:
        command = command.with_environment(name, value)
    command = (
        command.with_flag("--nnodes", str(len(nodes)))
        .with_flag("--node-rank", str(rank))
        .with_flag("--master-addr", nodes[0].address)
        .with_flag("--master-port", str(port))
    )
    return command.with_flag("--headless", True if rank else None)


class NodesServer:
    """The servers of all ranks as one; it has ended as soon as one of them has. See `runner.port.Server`."""

    def __init__(self, ranks: tuple[Server, ...], clock: Clock) -> None:
        self._ranks = ranks
        self._clock = clock

    @property
    def ranks(self) -> tuple[Server, ...]:
        return self._ranks

    @property
    def id(self) -> str:
        return self._ranks[0].id

    @property
    def base_url(self) -> str:
        return self._ranks[0].base_url

    @property
    def log(self) -> Path:
        return self._ranks[0].log

    def exit_evidence(self) -> ExitEvidence | None:
        found = [rank.exit_evidence() for rank in self._ranks]
        return next((evidence for evidence in found if evidence is not None), None)

    def stranger(self) -> str | None:
        return self._ranks[0].stranger()

    def activity(self) -> Activity:
        used = [rank.activity() for rank in self._ranks]
        return Activity(sum(u.cpu_s for u in used), sum(u.io_bytes for u in used), sum(u.network_bytes for u in used))

    def where_it_waits(self) -> tuple[str, ...]:
        return tuple(f"rank {n}: {line}" for n, rank in enumerate(self._ranks) for line in rank.where_it_waits())

    def notes(self) -> tuple[str, ...]:
        return tuple(f"rank {n}: {line}" for n, rank in enumerate(self._ranks) for line in rank.notes())

    def stop(self) -> StopReport:
        """All ranks at once: a rank that waits for a lost one obeys no signal, and its time-outs should not add up."""
        begun = self._clock.monotonic()
        with ThreadPoolExecutor(len(self._ranks)) as pool:
            reports = list(pool.map(lambda rank: rank.stop(), self._ranks))
        worst = max((report.ending for report in reports), key=_WORST_LAST.index)
        left = tuple(pid for report in reports for pid in report.left)
        return StopReport(worst, reports[0].code, self._clock.monotonic() - begun, left)


def _socket_environment(interface: str, address: str) -> tuple[tuple[str, str], ...]:
    """Which interface the group's libraries use; they guess wrong where a node has several."""
    names = (("GLOO_SOCKET_IFNAME", interface), ("NCCL_SOCKET_IFNAME", interface))
    return (*names, ("VLLM_HOST_IP", address)) if address else names


def _free_port() -> int:
    """A port that is free on this host. In a namespace or a container of its own nearly every port is."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
