"""Kills by the kernel, told apart from those of neighbours, on files as the kernel writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro.machine.host_trouble import HostTrouble
from repro.machine.stacks import main_thread

ME = os.getpid()
KILL = "6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,cpuset=/,oom_memcg={0},task_memcg={0},task=python,pid={1},uid=0\n"


class Machine:
    """A /proc, control groups of version 1 or 2, and a kernel log that is a file."""

    def __init__(self, folder: Path, version: int) -> None:
        self.folder = folder
        self.version = version
        self.kmsg = folder / "kmsg"
        self.kmsg.write_text("6,0,1,-;booted\n")

    def process(self, pid: int | str, group: str) -> None:
        folder = self.folder / "proc" / str(pid)
        folder.mkdir(parents=True)
        rows = f"0::{group}\n" if self.version == 2 else f"9:name=systemd:/\n4:memory:{group}\n0::/\n"
        (folder / "cgroup").write_text(rows)

    def kills(self, group: str, count: int) -> None:
        base = self.folder / "cgroup" if self.version == 2 else self.folder / "cgroup" / "memory"
        folder = base / group.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        (folder / file).write_text(f"low 0\noom {count}\noom_kill {count}\n")

    def says(self, line: str) -> None:
        with self.kmsg.open("a") as log:
            log.write(line)

    def trouble(self) -> HostTrouble:
        return HostTrouble(self.folder / "cgroup", self.kmsg, self.folder / "proc")


@pytest.fixture(params=[1, 2])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Machine:
    made = Machine(tmp_path, request.param)
    made.process("self", "/job")
    made.kills("/job", 3)
    return made


def test_kills_in_the_servers_own_group_are_its_own(machine: Machine) -> None:
    machine.process(ME, "/job/server")
    machine.kills("/job/server", 1)
    trouble = machine.trouble()
    trouble.seen(ME)
    assert (trouble.kills(), trouble.oom_killed()) == (0, False)
    machine.kills("/job/server", 2)
    machine.says(KILL.format("/job/server", 4711))
    assert (trouble.kills(), trouble.oom_killed()) == (1, True)
    assert "pid=4711" in trouble.kernel_lines()[0]
    trouble.close()
    assert trouble.kernel_lines(), "what was read stays"


@pytest.mark.parametrize(("pid", "ours"), [(ME, True), (4711, False)], ids=["own", "foreign"])
def test_in_a_shared_group_the_kernels_log_says_who_died(machine: Machine, pid: int, ours: bool) -> None:
    machine.process(ME, "/job")
    trouble = machine.trouble()
    trouble.seen(ME)
    machine.kills("/job", 4)
    machine.says(KILL.format("/job", pid))
    assert trouble.oom_killed() is ours


def test_without_the_kernels_log_a_kill_in_the_group_counts(machine: Machine) -> None:
    machine.kmsg.unlink()
    machine.process(ME, "/job")
    trouble = machine.trouble()
    trouble.seen(ME)
    machine.kills("/job", 4)
    assert trouble.oom_killed() is True


def test_where_nothing_can_be_read_nothing_is_known(tmp_path: Path) -> None:
    trouble = HostTrouble(tmp_path, tmp_path / "none", tmp_path)
    trouble.seen(ME)
    assert trouble.oom_killed() is None
    assert trouble.kernel_lines() == ()


def test_only_what_concerns_the_server_is_kept_of_the_kernels_log(machine: Machine) -> None:
    machine.process(ME, "/job/server")
    machine.kills("/job/server", 0)
    trouble = machine.trouble()
    trouble.seen(ME)
    machine.says(KILL.format("/other", 1))
    machine.says("6,3,3,-;eth0: link up\n")
    machine.says("3,4,4,-;NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n")
    assert trouble.kernel_lines() == ("NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.",)


DUMP = """Process 7: vllm serve
Python v3.11.7 (/usr/bin/python3.11)

Thread 9 (idle): "Thread-1 (run)"
    wait (threading.py:331)
Thread 7 (active+gil): "MainThread"
    recv (zmq/sugar/socket.py:805)
    wait_ready (vllm/v1/engine/core_client.py:400)
    __init__ (vllm/v1/engine/core_client.py:200)
    main (vllm/cli.py:1)
"""


def test_the_innermost_frames_of_the_main_thread() -> None:
    assert main_thread(DUMP).startswith("recv (zmq/sugar/socket.py:805) < wait_ready (vllm")
    assert "main (" not in main_thread(DUMP)
    assert main_thread("") == ""
