"""The host: kernel, system, CPU, memory, limits, clock. On a system without /proc what it would give is unavailable."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from repro.domain.fingerprint import Fact
from repro.snapshot.collector import Context, attempt
from repro.snapshot.host_hardware import disk_of, infiniband, modules, numa_nodes
from repro.snapshot.model_place import on_host, place_of

_LIMITS = ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_MEMLOCK", "RLIMIT_CORE", "RLIMIT_AS", "RLIMIT_STACK")
# cgroup v1 writes "no limit" as the largest page-aligned 63-bit number.
_NO_LIMIT = 2**60


class HostCollector:
    """Facts of the machine that repro itself runs on."""

    name = "host"
    deadline = 10.0
    fields = (
        "hostname",
        "kernel",
        "os",
        "architecture",
        "cpu",
        "cpu_count",
        "memory_total",
        "memory_available",
        "swap_total",
        "swap_used",
        "shm_total",
        "shm_free",
        "ulimits",
        "cgroup_memory_limit",
        "cgroup_cpu_limit",
        "numa",
        "model_disk",
        "modules",
        "infiniband",
        "nccl_files",
        "load",
        "boot_time",
        "clock",
    )

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """Sizes in bytes, times in Unix seconds, load as the averages over 1, 5 and 15 minutes."""
        root = context.root
        return {
            "hostname": attempt(platform.node),
            "kernel": attempt(lambda: f"{platform.system()} {platform.release()}"),
            "os": attempt(lambda: _os_name(root)),
            "architecture": attempt(platform.machine),
            "cpu": attempt(lambda: _cpu_model(root)),
            "cpu_count": attempt(lambda: {"logical": os.cpu_count(), "usable": _usable_cpus()}),
            "memory_total": attempt(lambda: psutil.virtual_memory().total),
            "memory_available": attempt(lambda: psutil.virtual_memory().available),
            "swap_total": attempt(lambda: psutil.swap_memory().total),
            "swap_used": attempt(lambda: psutil.swap_memory().used),
            "shm_total": attempt(lambda: shutil.disk_usage(root / "dev/shm").total),
            "shm_free": attempt(lambda: shutil.disk_usage(root / "dev/shm").free),
            "ulimits": attempt(lambda: _ulimits(context.pid)),
            "cgroup_memory_limit": attempt(lambda: _cgroup_memory_limit(root, context.pid)),
            "cgroup_cpu_limit": attempt(lambda: _cgroup_cpu_limit(root, context.pid)),
            "numa": attempt(lambda: numa_nodes(root)),
            "model_disk": attempt(lambda: disk_of(_model_place(context), root)),
            "modules": attempt(lambda: modules(root)),
            "infiniband": attempt(lambda: infiniband(root)),
            "nccl_files": attempt(lambda: _nccl_files(context)),
            "load": attempt(lambda: [round(value, 2) for value in os.getloadavg()]),
            "boot_time": attempt(psutil.boot_time),
            "clock": attempt(lambda: {"unix": time.time(), "zone": time.strftime("%Z %z")}),
        }


def _os_name(root: Path) -> str:
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]}"
    lines = (root / "etc/os-release").read_text(encoding="utf-8").splitlines()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return values["PRETTY_NAME"].strip('"')


def _cpu_model(root: Path) -> str:
    with (root / "proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _usable_cpus() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _ulimits(pid: int | None) -> dict[str, list[int | None]]:
    """Soft and hard limits, None for unlimited; those of the server's process where the system can tell."""
    import resource  # not on every platform

    def limits(number: int) -> tuple[int, int]:
        if pid is not None and hasattr(resource, "prlimit"):
            return resource.prlimit(pid, number)
        return resource.getrlimit(number)

    shown: dict[str, list[int | None]] = {}
    for name in _LIMITS:
        if hasattr(resource, name):
            pair = limits(getattr(resource, name))
            shown[name[len("RLIMIT_") :].lower()] = [None if v == resource.RLIM_INFINITY else v for v in pair]
    return shown


def _cgroup_memory_limit(root: Path, pid: int | None) -> dict[str, object]:
    """The tightest memory limit on the way up to the root of the hierarchy; `bytes` is None for no limit."""
    version, group = _memory_group((root / "proc" / str(pid or "self") / "cgroup").read_text(encoding="utf-8"))
    top = root / "sys/fs/cgroup" / ("memory" if version == 1 else "")
    name = "memory.limit_in_bytes" if version == 1 else "memory.max"
    limits: list[int] = []
    place = top / group.lstrip("/")
    for folder in (place, *place.parents):
        if (folder / name).is_file():
            text = (folder / name).read_text(encoding="ascii").strip()
            limits += [int(text)] if text != "max" and int(text) < _NO_LIMIT else []
        if folder == top:
            break
    return {"version": version, "group": group, "bytes": min(limits, default=None)}


def _cgroup_cpu_limit(root: Path, pid: int | None) -> dict[str, object]:
    """CPUs that the group may use at once, None for no limit; of the group itself, not of those above."""
    text = (root / "proc" / str(pid or "self") / "cgroup").read_text(encoding="utf-8")
    groups = {name: group for line in text.splitlines() for name, group in _controllers(line)}
    if "cpu" in groups:
        folder = root / "sys/fs/cgroup/cpu" / groups["cpu"].lstrip("/")
        quota = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
        period = int((folder / "cpu.cfs_period_us").read_text(encoding="ascii"))
        return {"version": 1, "cpus": None if quota < 0 else quota / period}
    limit = root / "sys/fs/cgroup" / groups[""].lstrip("/") / "cpu.max"
    if not limit.is_file():  # the hierarchy's root has no such file
        return {"version": 2, "cpus": None}
    words = limit.read_text(encoding="ascii").split()
    return {"version": 2, "cpus": None if words[0] == "max" else int(words[0]) / int(words[1])}


def _controllers(line: str) -> list[tuple[str, str]]:
    _, names, group = line.split(":", 2)
    return [(name, group) for name in names.split(",")]


def _model_place(context: Context) -> Path:
    """Where the weights are read from: the model's folder, or the hub's cache."""
    model = context.model or (context.command.model if context.command is not None else None)
    if model is None:
        raise LookupError("no model was named")
    if context.container is not None:
        return on_host(model, context.container)
    return place_of(model, context.server_environment())


def _nccl_files(context: Context) -> dict[str, str]:
    """Files that change NCCL without any variable, with their text."""
    home = context.server_environment().get("HOME")
    places = [context.root / "etc/nccl.conf", *([Path(home) / ".nccl.conf"] if home else [])]
    return {str(path): context.redactor.text(path.read_text(errors="replace")) for path in places if path.is_file()}


def _memory_group(text: str) -> tuple[int, str]:
    unified = None
    for line in text.splitlines():
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            return 1, group
        if not controllers:
            unified = group
    if unified is None:
        raise LookupError("no memory cgroup is listed")
    return 2, unified
