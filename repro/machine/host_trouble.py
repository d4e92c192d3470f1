"""What the machine itself says about the end of a server: kills for lack of memory, GPU faults in the kernel's log.

A vLLM that loses a worker or its engine to the kernel often prints no word about it, and its exit code can be 0. The
count of kills is read from the control group that the server's first process is in, while it lives: a launcher may put
it into another one than repro's. The kernel's log is read from the moment of the start on, where it may be read at all.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import psutil

_KMSG = Path("/dev/kmsg")
_GROUPS = Path("/sys/fs/cgroup")
_MOST_LINES = 5
_RECORD = 8192  # bytes; the kernel gives one record a read, and none is longer
_OOM = re.compile(r"oom-kill:.*task_memcg=(?P<group>[^,]*),.*pid=(?P<pid>\d+)")
_GPU = re.compile(r"NVRM: Xid|NVRM: GPU .* fallen off the bus|amdgpu.*(?:GPU reset|ring .* timeout)")


class HostTrouble:
    """Looks after one server. `seen` is told of its first process while it lives, and cheap.

    `groups`, `kmsg` and `proc` are where control groups, the kernel's log and processes are found.
    """

    def __init__(self, groups: Path = _GROUPS, kmsg: Path = _KMSG, proc: Path = Path("/proc")) -> None:
        self._groups = groups
        self._proc = proc
        self._first: dict[str, int] = {}
        self._last: dict[str, int] = {}
        self._lines: list[str] = []
        self._pids: set[int] = set()
        self._own = self._group_of("self")
        self._handle = _at_the_end(kmsg)

    def seen(self, pid: int) -> None:
        """Remember the control group of a process, how many kills it has counted, and the process's descendants."""
        with suppress(psutil.Error):
            self._pids.update((pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))))
        group = self._group_of(str(pid))
        if group is not None and (count := self._kills(group)) is not None:
            self._first.setdefault(group, count)
            self._last[group] = count

    def kills(self) -> int:
        """Processes that the kernel has killed in the server's control groups since it was first seen there."""
        for group in self._first:
            # A group that goes with its last process keeps the count that was read last.
            self._last[group] = self._kills(group) or self._last[group]
        return sum(self._last[group] - first for group, first in self._first.items())

    def oom_killed(self) -> bool | None:
        """True where the kernel killed something of the server; None where that cannot be known."""
        kills = self.kills()
        if kills and self._all_were_others(kills):
            return False
        return True if kills else False if self._first else None

    def _all_were_others(self, kills: int) -> bool:
        """In a control group that the server shares with repro and who knows whom, the kernel's log says who died."""
        told = [found for line in self.kernel_lines() if (found := _OOM.search(line))]
        shared = all(group == self._own for group in self._first)
        return shared and len(told) >= kills and not any(int(found["pid"]) in self._pids for found in told)

    def kernel_lines(self) -> tuple[str, ...]:
        """What the kernel has said since: kills in the server's control groups, and faults of any GPU."""
        self._read_kernel()
        return tuple(self._lines)

    def close(self) -> None:
        """Read for the last time."""
        self._read_kernel()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _read_kernel(self) -> None:
        while self._handle is not None and len(self._lines) < _MOST_LINES:
            try:
                record = os.read(self._handle, _RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:  # records were overwritten before they were read: go on with the next
                continue
            except OSError:
                record = b""
            if not record:
                return
            # `level,number,time,flags;message`, then indented lines of facts about the device.
            for line in record.decode("utf-8", "replace").splitlines():
                message = line.partition(";")[2]
                if not line.startswith(" ") and self._concerns(message):
                    self._lines.append(message)

    def _concerns(self, line: str) -> bool:
        found = _OOM.search(line)
        if found is None:
            return bool(_GPU.search(line))
        return any(found["group"].endswith(group) or group.endswith(found["group"]) for group in self._first)

    def _group_of(self, pid: str) -> str | None:
        """The path of the memory controller's group (version 1), or of the one group (version 2)."""
        with suppress(OSError):
            rows = [line.split(":", 2) for line in (self._proc / pid / "cgroup").read_text().splitlines()]
            paths = {controllers: path for _, controllers, path in rows}
            return paths.get("memory", paths.get(""))
        return None

    def _kills(self, group: str) -> int | None:
        for base, file in ((self._groups, "memory.events"), (self._groups / "memory", "memory.oom_control")):
            with suppress(OSError, ValueError, KeyError):
                text = (base / group.strip("/") / file).read_text()
                return int(dict(line.split() for line in text.splitlines())["oom_kill"])
        return None


def _at_the_end(kmsg: Path) -> int | None:
    """An open handle behind the kernel's last word; None where its log may not be read."""
    handle = None
    try:
        handle = os.open(kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(handle, 0, os.SEEK_END)
    except OSError:
        if handle is not None:
            os.close(handle)
        return None
    return handle
