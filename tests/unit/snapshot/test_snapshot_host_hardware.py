"""NUMA, disks, InfiniBand and modules from a tree of the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.domain.command import parse
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context
from repro.snapshot.host import HostCollector
from repro.snapshot.host_hardware import disk_of, infiniband, modules, numa_nodes


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_numa_nodes(tmp_path: Path) -> None:
    for node in (0, 1, 10):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        write(folder / "cpulist", f"{node}-{node + 3}\n")
        write(folder / "meminfo", f"Node {node} MemTotal:       1024 kB\nNode {node} MemFree: 1 kB\n")
    assert [each["node"] for each in numa_nodes(tmp_path)] == [0, 1, 10]
    assert numa_nodes(tmp_path)[1] == {"node": 1, "cpus": "1-4", "memory": 1 << 20}
    with pytest.raises(LookupError, match="no NUMA nodes"):
        numa_nodes(tmp_path / "sys")


def test_infiniband_and_modules(tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        infiniband(tmp_path)
    (tmp_path / "sys/class").mkdir(parents=True)
    assert infiniband(tmp_path) == []
    port = tmp_path / "sys/class/infiniband/mlx5_0/ports/1"
    write(port / "state", "4: ACTIVE\n")
    write(port / "rate", "400 Gb/sec (4X NDR)\n")
    assert infiniband(tmp_path) == [
        {"device": "mlx5_0", "port": 1, "state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "link_layer": None}
    ]
    write(tmp_path / "proc/modules", "nvidia_peermem 16384 0 - Live 0x0\nnvidia 5 1 nvidia_peermem, Live 0x0\n")
    loaded = modules(tmp_path)
    assert loaded["nvidia_peermem"] is True
    assert loaded["gdrdrv"] is False


def test_the_disk_below_a_model(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/mounts", f"/dev/a / ext4 rw 0 0\nnas:/m {tmp_path} nfs4 ro,relatime 0 0\nodd\n")
    disk = disk_of(tmp_path / "not/there/yet", tmp_path)
    assert disk["path"] == str(tmp_path)
    assert (disk["device"], disk["type"], disk["read_only"]) == ("nas:/m", "nfs4", True)
    assert disk["total"] >= disk["free"] > 0
    assert disk["rotational"] is None


def test_the_collector_takes_the_models_disk_and_ncclconf(tmp_path: Path) -> None:
    write(tmp_path / "home/.nccl.conf", "NCCL_DEBUG=WARN\n")
    context = Context(
        Redactor(), command=parse(f"vllm serve {tmp_path}"), environment={"HOME": str(tmp_path / "home")}, root=tmp_path
    )
    facts = HostCollector().collect(context)
    assert facts["model_disk"].value["path"] == str(tmp_path)
    assert facts["nccl_files"].value == {str(tmp_path / "home/.nccl.conf"): "NCCL_DEBUG=WARN\n"}


@pytest.mark.parametrize(
    ("group", "file", "text", "cpus"),
    [
        ("3:cpu,cpuacct:/x", "cpu/x/cpu.cfs_quota_us", "150000", 1.5),
        ("3:cpu,cpuacct:/x", "cpu/x/cpu.cfs_quota_us", "-1", None),
        ("0::/x", "x/cpu.max", "200000 100000", 2.0),
        ("0::/x", "x/cpu.max", "max 100000", None),
        ("0::/", "unused", "", None),
    ],
)
def test_cpu_limits_of_both_cgroup_versions(
    tmp_path: Path, group: str, file: str, text: str, cpus: float | None
) -> None:
    write(tmp_path / "proc/self/cgroup", f"{group}\n")
    write(tmp_path / "sys/fs/cgroup" / file, f"{text}\n")
    write(tmp_path / "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n")
    assert HostCollector().collect(Context(Redactor(), root=tmp_path))["cgroup_cpu_limit"].value["cpus"] == cpus
