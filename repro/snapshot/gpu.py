"""The GPUs by NVML: driver, devices, their state, and who uses them. Without a driver every field is unavailable.

Each field is one question to all devices in a thread of its own, so that a call that the driver never answers costs
that field and no other; NVML may be called from several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from repro.domain.fingerprint import Fact
from repro.machine.clock import SystemClock
from repro.machine.containers import container_of_process
from repro.machine.nvml import NvmlUnavailable, close_nvml, open_nvml
from repro.machine.processes import describe
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context, attempt

_CORRECTED, _UNCORRECTED, _SINCE_BOOT = 0, 1, 0  # NVML_MEMORY_ERROR_TYPE_…, NVML_VOLATILE_ECC
_MOST_LINKS = 18  # NVLinks of one GPU of the newest generation
_CLOCKS = {"graphics": 0, "sm": 1, "memory": 2}  # NVML_CLOCK_…
_Lost = Callable[[int, str], Any]
_SHARE_OF_TIME = 0.8  # of the collector's deadline for each field; the rest is for giving the others back


class GpuCollector:
    """`library` stands for `pynvml`; None means the real one."""

    name = "gpu"
    deadline = 10.0
    fields = ("driver_version", "cuda_version", "devices", "memory_used", "utilization", "state", "processes")

    def __init__(self, library: Any = None, answer_s: float = deadline * _SHARE_OF_TIME) -> None:
        self._library = library
        self._answer_s = answer_s

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """Memory in bytes; `cuda_version` is what the driver supports, not what a server has loaded."""
        try:
            library = open_nvml(self._library)
        except NvmlUnavailable as error:
            return dict.fromkeys(self.fields, Fact.unavailable(str(error)))
        answers, all_came = _answers(_questions(library, context.redactor, context.root), self._answer_s)
        if all_came:
            close_nvml(library)
        return answers


def _answers(questions: Mapping[str, Callable[[], Any]], answer_s: float) -> tuple[dict[str, Fact], bool]:
    """The answers that came in time, and whether all came."""
    answers: dict[str, Fact] = {}

    def ask(name: str, read: Callable[[], Any]) -> None:
        answer = attempt(read)
        answers[name] = answer.value if isinstance(answer.value, Fact) else answer

    threads = {
        name: threading.Thread(target=ask, args=(name, read), name=f"nvml-{name}", daemon=True)
        for name, read in questions.items()
    }
    clock = SystemClock()
    until = clock.monotonic() + answer_s
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, until - clock.monotonic()))
    late = Fact.unavailable(f"the driver gave no answer within {answer_s:g} s")
    came = dict(answers)
    return {name: came.get(name, late) for name in questions}, len(came) == len(questions)


def _questions(library: Any, redactor: Redactor, root: Path) -> Mapping[str, Callable[[], Any]]:
    def each(read: Callable[[int, Any], Any], lost: _Lost) -> Callable[[], Fact]:
        return lambda: _of_each(library, read, lost)

    def nothing(_index: int, _reason: str) -> None:
        return None

    return {
        "driver_version": lambda: _text(library.nvmlSystemGetDriverVersion()),
        "cuda_version": lambda: _cuda_version(library.nvmlSystemGetCudaDriverVersion()),
        "devices": each(lambda i, handle: _device(library, i, handle), _entry_of_lost),
        "memory_used": each(lambda _, handle: library.nvmlDeviceGetMemoryInfo(handle).used, nothing),
        "utilization": each(lambda _, handle: library.nvmlDeviceGetUtilizationRates(handle).gpu, nothing),
        "state": each(lambda i, handle: _state(library, i, handle), _entry_of_lost),
        "processes": lambda: _all_processes(library, redactor, root),
    }


def _of_each(library: Any, read: Callable[[int, Any], Any], lost: _Lost) -> Fact:
    """One value a device, in their order. A device that does not answer (it has fallen off the bus, say) gets what
    `lost` makes of its index and the reason, and is named; only where none answers is it all unavailable.
    """
    told = [
        attempt(lambda i=index: read(i, library.nvmlDeviceGetHandleByIndex(i)))  # type: ignore[misc]
        for index in range(library.nvmlDeviceGetCount())
    ]
    silent = {index: fact.reason for index, fact in enumerate(told) if not fact.known}
    if silent and len(silent) == len(told):
        return Fact.unavailable("; ".join(dict.fromkeys(silent.values())))
    values = [lost(index, silent[index]) if index in silent else fact.value for index, fact in enumerate(told)]
    return Fact.measured(values, _without(silent))


def _without(silent: Mapping[int, str]) -> str:
    return f"without {'; '.join(f'GPU {index}: {reason}' for index, reason in silent.items())}" if silent else ""


def _entry_of_lost(index: int, reason: str) -> dict[str, Any]:
    """A device that is there and does not answer: it counts, and nothing else is known of it."""
    return {"index": index, "name": None, "lost": reason}


def _device(library: Any, index: int, handle: Any) -> dict[str, Any]:
    """What does not change by itself; a question that this device does not answer is None."""
    return {
        "index": index,
        "name": _or_none(lambda: _text(library.nvmlDeviceGetName(handle))),
        "uuid": _or_none(lambda: _text(library.nvmlDeviceGetUUID(handle))),
        "memory_total": _or_none(lambda: library.nvmlDeviceGetMemoryInfo(handle).total),
        "mig": _or_none(lambda: bool(library.nvmlDeviceGetMigMode(handle)[0])),
    }


def _state(library: Any, index: int, handle: Any) -> dict[str, Any]:
    """What moves or may be set: limits and draw in watts, clocks in MHz, ECC errors since the driver was loaded."""
    ask = library

    def watts(name: str) -> float | None:
        milliwatts = _or_none(lambda: getattr(ask, name)(handle))
        return None if milliwatts is None else milliwatts / 1000

    return {
        "index": index,
        "persistence": _or_none(lambda: bool(ask.nvmlDeviceGetPersistenceMode(handle))),
        "ecc": _or_none(lambda: bool(ask.nvmlDeviceGetEccMode(handle)[0])),
        "ecc_corrected": _or_none(lambda: ask.nvmlDeviceGetTotalEccErrors(handle, _CORRECTED, _SINCE_BOOT)),
        "ecc_uncorrected": _or_none(lambda: ask.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _SINCE_BOOT)),
        "power_limit": watts("nvmlDeviceGetEnforcedPowerLimit"),
        "power_default": watts("nvmlDeviceGetPowerManagementDefaultLimit"),
        "power": watts("nvmlDeviceGetPowerUsage"),
        "temperature": _or_none(lambda: ask.nvmlDeviceGetTemperature(handle, 0)),
        "clocks": {name: _or_none(lambda t=t: ask.nvmlDeviceGetClockInfo(handle, t)) for name, t in _CLOCKS.items()},  # type: ignore[misc]
        "max_clocks": {
            name: _or_none(lambda t=t: ask.nvmlDeviceGetMaxClockInfo(handle, t))  # type: ignore[misc]
            for name, t in _CLOCKS.items()
        },
        "pci": _or_none(lambda: _text(ask.nvmlDeviceGetPciInfo(handle).busId)),
        "pci_link": {
            "generation": _or_none(lambda: ask.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
            "generation_max": _or_none(lambda: ask.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
            "width": _or_none(lambda: ask.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            "width_max": _or_none(lambda: ask.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        },
        "nvlinks": _nvlinks(library, handle),
    }


def _nvlinks(library: Any, handle: Any) -> dict[str, int] | None:
    """How many links are up and down; None for a GPU without."""
    states = [_or_none(lambda n=n: library.nvmlDeviceGetNvLinkState(handle, n)) for n in range(_MOST_LINKS)]  # type: ignore[misc]
    told = [bool(state) for state in states if state is not None]
    return {"up": sum(told), "down": len(told) - sum(told)} if told else None


def _all_processes(library: Any, redactor: Redactor, root: Path) -> Fact:
    """Who computes on any device."""
    told = _of_each(library, lambda i, handle: _processes(library, i, handle, redactor, root), lambda *_: [])
    return Fact.measured([user for users in told.value for user in users], told.reason) if told.known else told


def _processes(library: Any, index: int, handle: Any, redactor: Redactor, root: Path) -> list[dict[str, Any]]:
    """`command` None for a process that another container or user hides; `mig` the instance of a divided device."""
    return [
        {
            "gpu": index,
            "mig": instance,
            "pid": process.pid,
            "memory": process.usedGpuMemory,
            "command": " ".join(redactor.argv(describe(process.pid).argv or ())) or None,
            "container": container_of_process(process.pid, root),
        }
        for instance, part in _parts(library, handle)
        for process in library.nvmlDeviceGetComputeRunningProcesses(part)
    ]


def _parts(library: Any, handle: Any) -> list[tuple[int | None, Any]]:
    """The device, or the instances that it is divided into: a divided one has no processes of its own."""
    if not _or_none(lambda: library.nvmlDeviceGetMigMode(handle)[0]):
        return [(None, handle)]
    count = _or_none(lambda: library.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0
    parts = [(n, _or_none(lambda n=n: library.nvmlDeviceGetMigDeviceHandleByIndex(handle, n))) for n in range(count)]  # type: ignore[misc]
    return [(n, part) for n, part in parts if part is not None] or [(None, handle)]


def _or_none(read: Callable[[], Any]) -> Any:
    fact = attempt(read)
    return fact.value if fact.known else None


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
