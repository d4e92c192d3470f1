"""A library object that answers as the `pynvml` module does: eight B300 by default, and any trouble a test asks for.

It knows the calls of the real module alone: one that the module lacks is an AttributeError, as there, and one that is
not written down here is refused as by a driver that is older than the binding.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 1 << 30
LINKS_UP = 18


class FakeNvml:
    """`refuses` maps calls to the error they raise (a name alone: not supported), `lost` are GPUs that have fallen off
    the bus, `users` {gpu: [(pid, bytes)]}, `mig` divided GPUs, `hangs` calls that return once `release` is set.
    """

    def __init__(
        self,
        count: int = 8,
        *,
        name: str | bytes = b"NVIDIA B300 SXM6 AC",
        driver: str | bytes = "580.95.05",
        refuses: Sequence[str] | Mapping[str, int] = (),
        lost: Sequence[int] = (),
        users: Mapping[int, Sequence[tuple[int, int | None]]] | None = None,
        mig: Sequence[int] = (),
        hangs: Sequence[str] = (),
    ) -> None:
        self.opened = 0
        self.asked: set[str] = set()
        self.release = threading.Event()
        self._count, self._name, self._driver, self._lost, self._mig = count, name, driver, lost, mig
        self._users, self._hangs = users or {}, hangs
        supported = dict.fromkeys(refuses, pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._refuses = dict(refuses) if isinstance(refuses, Mapping) else supported

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return object.__getattribute__(self, name)
        getattr(pynvml, name)
        self.asked.add(name)
        if name in self._hangs:
            self.release.wait(60)
        if name in self._refuses:
            raise pynvml.NVMLError(self._refuses[name])
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("nvml"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        raise AttributeError(name)

    def nvmlInit(self) -> None:
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self) -> str | bytes:
        return self._driver

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13010

    def nvmlDeviceGetCount(self) -> int:
        return self._count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index in self._lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return self._name

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=268 * GIB, used=handle * GIB)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=handle * 10)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        return [int(handle in self._mig), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return 7 if handle in self._mig else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> tuple[int, int]:
        if index > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return handle, index

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int | tuple[int, int]) -> list[SimpleNamespace]:
        if handle in self._mig:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        gpu, instance = handle if isinstance(handle, tuple) else (handle, 0)
        users = self._users.get(gpu, ()) if instance == 0 else ()
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in users]

    def nvmlDeviceGetPersistenceMode(self, handle: int) -> int:
        return 1

    def nvmlDeviceGetEccMode(self, handle: int) -> list[int]:
        return [1, 1]

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        assert counter == pynvml.NVML_VOLATILE_ECC
        return {pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED: 5, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED: handle}[kind]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return 700_000

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: int) -> int:
        return 1_100_000

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return 180_500

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return 41

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return self.nvmlDeviceGetMaxClockInfo(handle, kind) // 2

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        return {pynvml.NVML_CLOCK_GRAPHICS: 1920, pynvml.NVML_CLOCK_SM: 1922, pynvml.NVML_CLOCK_MEM: 3996}[kind]

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{handle + 23:02X}:00.0".encode())

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: int) -> int:
        return 6

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        return 6

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return 8 if handle == 5 else 16

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:
        return 16

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= LINKS_UP:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int((handle, link) != (6, 2))
