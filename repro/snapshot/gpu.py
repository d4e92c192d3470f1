"""The GPUs by NVML: driver, devices, memory, and who uses them. Without a driver every field is unavailable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from repro.domain.fingerprint import Fact
from repro.machine.nvml import NvmlUnavailable, nvml
from repro.machine.processes import describe
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context, attempt


class GpuCollector:
    """`library` stands for `pynvml`; None means the real one."""

    name = "gpu"
    deadline = 10.0
    fields = ("driver_version", "cuda_version", "devices", "memory_used", "utilization", "processes")

    def __init__(self, library: Any = None) -> None:
        self._library = library

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """Memory in bytes; `cuda_version` is what the driver supports, not what a server has loaded."""
        try:
            with nvml(self._library) as library:
                return _read(library, context.redactor)
        except NvmlUnavailable as error:
            return dict.fromkeys(self.fields, Fact.unavailable(str(error)))


def _read(library: Any, redactor: Redactor) -> Mapping[str, Fact]:
    def handles() -> list[Any]:
        return [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]

    return {
        "driver_version": attempt(lambda: _text(library.nvmlSystemGetDriverVersion())),
        "cuda_version": attempt(lambda: _cuda_version(library.nvmlSystemGetCudaDriverVersion())),
        "devices": attempt(lambda: [_device(library, i, handle) for i, handle in enumerate(handles())]),
        "memory_used": attempt(lambda: [library.nvmlDeviceGetMemoryInfo(h).used for h in handles()]),
        "utilization": attempt(lambda: [library.nvmlDeviceGetUtilizationRates(h).gpu for h in handles()]),
        "processes": attempt(
            lambda: [p for i, handle in enumerate(handles()) for p in _processes(library, i, handle, redactor)]
        ),
    }


def _device(library: Any, index: int, handle: Any) -> dict[str, Any]:
    """What does not change by itself; a question that this device does not answer is None."""
    return {
        "index": index,
        "name": _or_none(lambda: _text(library.nvmlDeviceGetName(handle))),
        "uuid": _or_none(lambda: _text(library.nvmlDeviceGetUUID(handle))),
        "memory_total": _or_none(lambda: library.nvmlDeviceGetMemoryInfo(handle).total),
        "mig": _or_none(lambda: bool(library.nvmlDeviceGetMigMode(handle)[0])),
    }


def _processes(library: Any, index: int, handle: Any, redactor: Redactor) -> list[dict[str, Any]]:
    return [
        {
            "gpu": index,
            "pid": process.pid,
            "memory": process.usedGpuMemory,
            "command": " ".join(redactor.argv(describe(process.pid).argv or ())) or None,
        }
        for process in library.nvmlDeviceGetComputeRunningProcesses(handle)
    ]


def _or_none(read: Callable[[], Any]) -> Any:
    fact = attempt(read)
    return fact.value if fact.known else None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
