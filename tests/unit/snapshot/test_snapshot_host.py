"""The host's facts, here and on a system without /proc."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context
from repro.snapshot.host import HostCollector


def host(root: Path = Path("/"), pid: int | None = None) -> dict[str, Fact]:
    return dict(HostCollector().collect(Context(Redactor(), root=root, pid=pid)))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_this_host() -> None:
    facts = host()
    assert set(facts) == set(HostCollector.fields)
    assert facts["kernel"].known
    assert facts["memory_total"].value >= facts["memory_available"].value > 0
    assert facts["ulimits"].value["nofile"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux names")
def test_linux_gives_everything() -> None:
    wanting = {name for name, fact in host().items() if not fact.known}
    assert wanting <= {"model_disk", "modules", "numa"}, "no model was named; small kernels have no modules or NUMA"


def test_a_system_without_proc_costs_only_what_proc_gives(tmp_path: Path) -> None:
    facts = host(tmp_path)
    assert facts["kernel"].known
    assert "not there" in facts["cgroup_memory_limit"].reason
    assert "not there" in facts["shm_total"].reason


def test_cgroup_v2_takes_the_tightest_limit_above(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    write(tmp_path / "sys/fs/cgroup/a/memory.max", "1000\n")
    write(tmp_path / "sys/fs/cgroup/a/b/memory.max", "max\n")
    assert host(tmp_path)["cgroup_memory_limit"].value == {"version": 2, "group": "/a/b", "bytes": 1000}


def test_cgroup_v1_writes_no_limit_as_a_large_number(tmp_path: Path) -> None:
    write(tmp_path / "proc/7/cgroup", "12:cpu:/x\n5:memory:/docker/1\n0::/y\n")
    write(tmp_path / "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n")
    assert host(tmp_path, pid=7)["cgroup_memory_limit"].value == {"version": 1, "group": "/docker/1", "bytes": None}


def test_an_unreadable_cgroup_names_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/cgroup", "3:cpu:/x\n")
    assert host(tmp_path)["cgroup_memory_limit"] == Fact.unavailable("no memory cgroup is listed")
