"""What the processes inside a container use and wait for, read here if they are this host's, else told by the daemon.

A pid that the daemon tells means nothing here when the daemon is on another machine (or in a virtual one): it is
believed only if the control group of that process names the container.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

from repro.machine.docker_engine import ContainerClient, ContainerState
from repro.machine.family import Activity, activity
from repro.machine.processes import ProcessRef
from repro.machine.stacks import where_they_wait

_COLUMNS = "pid,stat,wchan:32,comm"


class ContainerFamily:
    """The processes of one container, found anew with each question."""

    def __init__(self, client: ContainerClient, name: str, state: ContainerState | None) -> None:
        self._client = client
        self._name = name
        self.leader = state.pid if state is not None and _is_here(state.pid, state.id) else None

    def pids(self) -> frozenset[int]:
        """Those of this host; empty where they are another one's."""
        return frozenset(ref.pid for ref in self._members()) if self.leader is not None else frozenset()

    def activity(self) -> Activity:
        """What they have used so far."""
        if self.leader is not None:
            return activity(self._members(), own_network=True)
        lines = self._client.top(self._name, "pid,time")
        return Activity(cpu_s=sum(_seconds(line.split()[-1]) for line in lines if line.split()))

    def where_it_waits(self) -> tuple[str, ...]:
        """A line for each of them."""
        if self.leader is not None:
            return where_they_wait(self._members())
        return tuple(" ".join(line.split()) for line in self._client.top(self._name, _COLUMNS))

    def _members(self) -> tuple[ProcessRef, ...]:
        """The container's first process and all below it: an orphan inside becomes its child."""
        found = []
        with suppress(psutil.Error):
            leader = psutil.Process(self.leader)
            for process in (leader, *leader.children(recursive=True)):
                with suppress(psutil.Error):
                    found.append(ProcessRef(process.pid, process.create_time()))
        return tuple(found)


def _is_here(pid: int, container: str) -> bool:
    if not pid:
        return False
    try:
        return container in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def _seconds(text: str) -> float:
    """`[days-]hours:minutes:seconds` of ps; 0 for what is none."""
    days, _, clock = text.rpartition("-")
    try:
        parts = [int(part) for part in clock.split(":")]
        seconds = 86400.0 * int(days or 0)
        for power, part in zip((1, 60, 3600), reversed(parts), strict=False):
            seconds += power * part
        return seconds
    except ValueError:
        return 0.0
