"""What of the host decides speed and communication: NUMA nodes, the model's disk, InfiniBand and its GPU module."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MODULES = ("nvidia", "nvidia_uvm", "nvidia_peermem", "nv_peer_mem", "gdrdrv", "mlx5_ib", "ib_core", "amdgpu")


def numa_nodes(root: Path) -> list[dict[str, Any]]:
    """[{node, cpus, memory}], memory in bytes. LookupError on a kernel without NUMA."""
    folders = sorted((root / "sys/devices/system/node").glob("node[0-9]*"), key=lambda f: int(f.name[4:]))
    if not folders:
        raise LookupError("the kernel shows no NUMA nodes")
    return [
        {"node": int(folder.name[4:]), "cpus": _line(folder / "cpulist"), "memory": _node_memory(folder / "meminfo")}
        for folder in folders
    ]


def disk_of(path: Path, root: Path) -> dict[str, Any]:
    """The file system that `path`, or the nearest folder above that exists, lies on; sizes in bytes."""
    place = path.expanduser().absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    usage = shutil.disk_usage(place)
    facts: dict[str, Any] = {"path": str(place), "total": usage.total, "free": usage.free}
    mount = max(
        (fields for fields in _mounts(root) if _holds(fields[1], place)),
        key=lambda fields: len(fields[1]),
        default=None,
    )
    if mount is not None:
        device, folder, kind, options = mount
        facts |= {"device": device, "mounted_at": folder, "type": kind, "read_only": "ro" in options.split(",")}
        facts["rotational"] = _rotational(root, place)
    return facts


def infiniband(root: Path) -> list[dict[str, Any]]:
    """[{device, port, state, rate, link_layer}], empty where there is none. LookupError where /sys is not there."""
    if not (root / "sys/class").is_dir():
        raise LookupError("there is no /sys/class to look into")
    ports = sorted((root / "sys/class/infiniband").glob("*/ports/*"))
    return [
        {
            "device": port.parent.parent.name,
            "port": int(port.name),
            "state": _line(port / "state"),
            "rate": _line(port / "rate"),
            "link_layer": _line(port / "link_layer"),
        }
        for port in ports
    ]


def modules(root: Path) -> dict[str, bool]:
    """Which of the kernel modules that matter are loaded; a module that is built in is not listed by any kernel."""
    with (root / "proc/modules").open(encoding="ascii", errors="replace") as lines:
        loaded = {line.split(" ", 1)[0] for line in lines}
    return {name: name in loaded for name in _MODULES}


def _node_memory(path: Path) -> int | None:
    for line in (_line(path, whole=True) or "").splitlines():
        words = line.split()
        if len(words) >= 4 and words[2] == "MemTotal:":
            return int(words[3]) * 1024
    return None


def _mounts(root: Path) -> Iterator[tuple[str, str, str, str]]:
    text = _line(root / "proc/self/mounts", whole=True) or ""
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) >= 4:
            yield fields[0], fields[1].replace("\\040", " "), fields[2], fields[3]


def _holds(folder: str, place: Path) -> bool:
    return place == Path(folder) or Path(folder) in place.parents


def _rotational(root: Path, place: Path) -> bool | None:
    """Whether the disk below turns; None for a network file system and wherever the kernel does not say."""
    number = place.stat().st_dev
    device = root / "sys/dev/block" / f"{os.major(number)}:{os.minor(number)}"
    for folder in (device, device.resolve().parent):
        told = _line(folder / "queue/rotational")
        if told is not None:
            return told == "1"
    return None


def _line(path: Path, *, whole: bool = False) -> str | None:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text if whole else text.strip()
