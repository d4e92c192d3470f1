"""NVML at its own boundary: a library object with eight GPUs, none, or trouble."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context
from repro.snapshot.gpu import GpuCollector

GIB = 1 << 30


class FakeNvml:
    """Answers as pynvml does; `refuses` are calls that this driver does not support."""

    def __init__(self, count: int = 8, refuses: tuple[str, ...] = (), driver: str | bytes = "580.95.05") -> None:
        self.opened = 0
        self._count, self._refuses, self._driver = count, refuses, driver

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in object.__getattribute__(self, "_refuses"):
            raise RuntimeError("Not Supported")
        return object.__getattribute__(self, name)

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
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA B300"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=268 * GIB, used=handle * GIB)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        return [handle == 3, 0]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=handle * 10)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=GIB)] if handle == 2 else []


def test_eight_gpus_and_a_foreign_process() -> None:
    library = FakeNvml()
    facts = GpuCollector(library).collect(Context(Redactor()))
    assert facts["driver_version"].value == "580.95.05"
    assert facts["cuda_version"].value == "13.1"
    devices = facts["devices"].value
    assert len(devices) == 8
    assert devices[3] == {"index": 3, "name": "NVIDIA B300", "uuid": "GPU-3", "memory_total": 268 * GIB, "mig": True}
    assert facts["memory_used"].value == [i * GIB for i in range(8)]
    (process,) = facts["processes"].value
    assert process["gpu"] == 2
    assert process["pid"] == os.getpid()
    assert "python" in process["command"]
    assert library.opened == 0


def test_a_question_that_is_not_supported_costs_one_field() -> None:
    library = FakeNvml(2, ("nvmlDeviceGetMigMode", "nvmlDeviceGetUtilizationRates"), b"470.1")
    facts = GpuCollector(library).collect(Context(Redactor()))
    assert facts["driver_version"].value == "470.1"
    assert facts["devices"].value[0]["mig"] is None
    assert facts["utilization"].reason == "RuntimeError: Not Supported"
    assert facts["memory_used"].known


def test_no_driver_is_unavailable_and_no_crash() -> None:
    facts = GpuCollector(FakeNvml(refuses=("nvmlInit",))).collect(Context(Redactor()))
    assert set(facts) == set(GpuCollector.fields)
    assert {fact.reason for fact in facts.values()} == {"NVML: Not Supported"}


def test_the_real_library_gives_every_field() -> None:
    pytest.importorskip("pynvml")
    facts = GpuCollector().collect(Context(Redactor()))
    assert set(facts) == set(GpuCollector.fields)
    assert all(fact.known or fact.reason for fact in facts.values())


def test_a_call_that_hangs_costs_its_field_and_the_library_stays_open() -> None:
    release = threading.Event()

    class Hanging(FakeNvml):
        def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
            release.wait(60)
            return SimpleNamespace(gpu=0)

    library = Hanging(2)
    try:
        facts = GpuCollector(library, answer_s=0.3).collect(Context(Redactor()))
    finally:
        release.set()
    assert facts["utilization"].reason == "the driver gave no answer within 0.3 s"
    assert facts["driver_version"].known
    assert facts["processes"].known
    assert library.opened == 1, "closing it under a call that is still in it would crash"


def test_one_device_that_does_not_tell_its_processes_is_named() -> None:
    class Partly(FakeNvml):
        def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
            if handle == 1:
                raise RuntimeError("Unknown Error")
            return super().nvmlDeviceGetComputeRunningProcesses(handle)

    fact = GpuCollector(Partly(3)).collect(Context(Redactor()))["processes"]
    assert [process["gpu"] for process in fact.value] == [2]
    assert fact.reason == "without GPU 1: RuntimeError: Unknown Error"


def test_the_instances_of_a_divided_device_are_asked() -> None:
    class Divided(FakeNvml):
        def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
            return 2

        def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> str:
            if index == 1:
                raise RuntimeError("Not Found")
            return f"{handle}/{index}"

        def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[SimpleNamespace]:
            return [SimpleNamespace(pid=1, usedGpuMemory=None)] if handle == "3/0" else []

    (process,) = GpuCollector(Divided(4)).collect(Context(Redactor()))["processes"].value
    assert (process["gpu"], process["mig"], process["memory"]) == (3, 0, None)


def test_state_is_in_watts_and_silent_questions_are_none() -> None:
    class Telling(FakeNvml):
        def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
            return 1_100_000

        def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
            if link >= 4:
                raise RuntimeError("Invalid Argument")
            return link != 2

        def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
            return 3 * kind

    (state,) = GpuCollector(Telling(1)).collect(Context(Redactor()))["state"].value
    assert state["power_limit"] == 1100.0
    assert state["nvlinks"] == {"up": 3, "down": 1}
    assert (state["ecc_corrected"], state["ecc_uncorrected"]) == (0, 3)
    assert state["pci_link"]["width"] is None
    assert state["power"] is None
