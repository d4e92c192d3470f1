"""NVML at its own boundary: a library object with eight GPUs, none, or trouble."""

from __future__ import annotations

import time
from datetime import date
from pathlib import Path
from typing import Any

import pynvml
import pytest

from repro.domain.compatibility import Link, Node, RuleOutcome, check
from repro.domain.fingerprint import Fact
from repro.recipe.ask import conditions_of
from repro.recipe.find import find_recipe
from repro.redact.redactor import Redactor
from repro.snapshot.capture import capture
from repro.snapshot.collector import Context
from repro.snapshot.gpu import GpuCollector
from repro.snapshot.kernel import KernelCollector
from tests.fakes.fitting_facts import fitting_values
from tests.fakes.nvml import GIB, FakeNvml

KIMI = "kimi-k3-b300"
CONTAINER = "ab" * 32
TODAY = date(2026, 12, 1)


def collect(library: FakeNvml, root: Path = Path("/")) -> dict[str, Fact]:
    return dict(GpuCollector(library).collect(Context(Redactor(), root=root)))


def checked(library: FakeNvml) -> dict[str, RuleOutcome]:
    """The outcome of each rule for a fitting server on the GPUs of this library."""
    facts = {name: Fact.measured(value) for name, value in fitting_values(KIMI).items()}
    facts |= {f"gpu.{name}": fact for name, fact in collect(library).items()}
    chain = check([Node("node", facts)], conditions_of(find_recipe(KIMI)), today=TODAY)
    return {rule.id: rule.outcome for rule in chain.results}


def test_eight_gpus() -> None:
    library = FakeNvml()
    facts = collect(library)
    assert facts["driver_version"].value == "580.95.05"
    assert facts["cuda_version"].value == "13.1"
    assert [device["index"] for device in facts["devices"].value] == list(range(8))
    assert facts["devices"].value[3] == {
        "index": 3,
        "name": "NVIDIA B300 SXM6 AC",
        "uuid": "GPU-3",
        "memory_total": 268 * GIB,
        "mig": False,
    }
    assert facts["memory_used"].value == [i * GIB for i in range(8)]
    assert facts["utilization"].value == [i * 10 for i in range(8)]
    assert facts["processes"].value == []
    assert library.opened == 0
    assert library.asked <= set(dir(pynvml))


def test_limits_links_and_errors_of_every_gpu() -> None:
    states = collect(FakeNvml())["state"].value
    assert len(states) == 8
    assert states[5] == {
        "index": 5,
        "persistence": True,
        "ecc": True,
        "ecc_corrected": 5,
        "ecc_uncorrected": 5,
        "power_limit": 700.0,
        "power_default": 1100.0,
        "power": 180.5,
        "temperature": 41,
        "clocks": {"graphics": 960, "sm": 961, "memory": 1998},
        "max_clocks": {"graphics": 1920, "sm": 1922, "memory": 3996},
        "pci": "00000000:1C:00.0",
        "pci_link": {"generation": 6, "generation_max": 6, "width": 8, "width_max": 16},
        "nvlinks": {"up": 18, "down": 0},
    }
    assert states[6]["nvlinks"] == {"up": 17, "down": 1}


def test_a_foreign_process_is_named_with_its_container(tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/cgroup").write_text(f"0::/system.slice/docker-{CONTAINER}.scope\n")
    gone = 2**22 + 1  # above any pid that the kernel gives: another namespace's
    facts = collect(FakeNvml(users={2: [(1, GIB), (gone, None)]}), tmp_path)
    ours, hidden = facts["processes"].value
    assert (ours["gpu"], ours["pid"], ours["memory"], ours["container"]) == (2, 1, GIB, CONTAINER)
    assert ours["command"]
    assert hidden == {"gpu": 2, "mig": None, "pid": gone, "memory": None, "command": None, "container": None}


def test_an_xid_stands_beside_the_gpu_that_is_lost(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    told = "NVRM: Xid (PCI:0000:1a:00): 79, pid=4242, name=VLLM::Worker, GPU has fallen off the bus."
    (tmp_path / "dev/kmsg").write_text(f"4,2,3500000,-;{told}\n")
    snapshot = capture(
        Context(Redactor(), root=tmp_path), [GpuCollector(FakeNvml(lost=[3], users={4: [(1, 7)]})), KernelCollector()]
    )
    (xid,) = snapshot.fact("kernel.xids").value
    assert (xid["device"], xid["number"]) == ("PCI:0000:1a:00", 79)
    devices = snapshot.fact("gpu.devices")
    assert len(devices.value) == 8
    assert devices.value[3]["lost"].endswith("GPU is lost")
    assert devices.value[4]["name"] == "NVIDIA B300 SXM6 AC"
    assert devices.reason.startswith("without GPU 3: ")
    assert snapshot.fact("gpu.memory_used").value[2:5] == [2 * GIB, None, 4 * GIB]
    assert [process["gpu"] for process in snapshot.fact("gpu.processes").value] == [4]


def test_a_lost_gpu_breaks_the_chain() -> None:
    assert checked(FakeNvml())["gpu.model"] is RuleOutcome.HOLDS
    assert checked(FakeNvml(lost=[3]))["gpu.model"] is RuleOutcome.BROKEN


def test_a_driver_too_old_for_the_recipe_is_the_first_broken_link() -> None:
    library = FakeNvml(driver=b"570.86.15")
    assert checked(library)["driver.version"] is RuleOutcome.BROKEN
    facts = {f"gpu.{name}": fact for name, fact in collect(library).items()}
    chain = check([Node("node", facts)], conditions_of(find_recipe(KIMI)), today=TODAY)
    broken = next(rule for rule in chain.results if rule.outcome is RuleOutcome.BROKEN)
    assert (broken.link, broken.seen) == (Link.DRIVER, "driver 570.86.15")


def test_a_driver_too_old_for_the_binding_keeps_what_it_knows() -> None:
    missing = ("nvmlDeviceGetMigMode", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetComputeRunningProcesses")
    facts = collect(FakeNvml(2, refuses=dict.fromkeys(missing, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)))
    assert facts["driver_version"].known
    assert [device["mig"] for device in facts["devices"].value] == [None, None]
    assert facts["state"].value[0]["nvlinks"] is None
    assert "Function Not Found" in facts["processes"].reason


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "NVML: NVML Shared Library Not Found"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "NVML: Driver Not Loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "NVML: RM has detected an NVML/RM version mismatch."),
    ],
)
def test_no_usable_driver_is_unavailable_and_no_crash(error: int, told: str) -> None:
    library = FakeNvml(refuses={"nvmlInit": error})
    facts = collect(library)
    assert set(facts) == set(GpuCollector.fields)
    assert {fact.reason for fact in facts.values()} == {told}
    assert library.opened == 0


def test_a_divided_gpu_is_asked_by_its_instances_and_breaks_the_chain() -> None:
    library = FakeNvml(4, mig=[3], users={1: [(1, GIB)], 3: [(1, None)]})
    facts = collect(library)
    assert [device["mig"] for device in facts["devices"].value] == [False, False, False, True]
    whole, part = facts["processes"].value
    assert (whole["gpu"], whole["mig"]) == (1, None)
    assert (part["gpu"], part["mig"], part["memory"]) == (3, 0, None)
    assert checked(FakeNvml(mig=[3]))["gpu.mig"] is RuleOutcome.BROKEN


def test_a_question_that_is_not_supported_costs_one_field() -> None:
    library = FakeNvml(2, refuses=("nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetUtilizationRates"))
    facts = collect(library)
    assert facts["utilization"].reason.endswith("Not Supported")
    assert facts["memory_used"].known
    assert facts["state"].value[0]["ecc_corrected"] is None
    assert facts["state"].value[0]["power"] == 180.5


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        ("nvmlDeviceGetUtilizationRates", {"utilization"}),
        ("nvmlDeviceGetComputeRunningProcesses", {"processes"}),
        ("nvmlDeviceGetNvLinkState", {"state"}),
        ("nvmlSystemGetCudaDriverVersion", {"cuda_version"}),
    ],
)
def test_a_call_that_hangs_costs_its_field_and_the_library_stays_open(call: str, fields: set[str]) -> None:
    library = FakeNvml(hangs=[call])
    begun = time.monotonic()
    try:
        facts = GpuCollector(library, answer_s=0.2).collect(Context(Redactor()))
    finally:
        library.release.set()
    assert time.monotonic() - begun < GpuCollector.deadline
    assert {name for name, fact in facts.items() if not fact.known} == fields
    assert {facts[name].reason for name in fields} == {"the driver gave no answer within 0.2 s"}
    assert library.opened == 1, "closing it under a call that is still in it would crash"


def test_a_driver_that_hangs_at_once_costs_the_collectors_deadline_and_no_other_collector() -> None:
    library = FakeNvml(hangs=["nvmlInit"])
    collector = GpuCollector(library)
    collector.deadline = 0.2
    try:
        snapshot = capture(Context(Redactor()), [collector, KernelCollector()])
    finally:
        library.release.set()
    assert {snapshot.missing[f"gpu.{name}"] for name in GpuCollector.fields} == {"no answer within 0.2 s"}
    assert "kernel" in snapshot.facts


def test_the_real_library_gives_every_field() -> None:
    facts = GpuCollector().collect(Context(Redactor()))
    assert set(facts) == set(GpuCollector.fields)
    assert all(fact.known or fact.reason for fact in facts.values())


def test_one_device_that_does_not_tell_its_processes_is_named() -> None:
    class Partly(FakeNvml):
        def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Any:
            if handle == 1:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
            return super().nvmlDeviceGetComputeRunningProcesses(handle)

    fact = collect(Partly(3, users={2: [(1, GIB)]}))["processes"]
    assert [process["gpu"] for process in fact.value] == [2]
    assert fact.reason.startswith("without GPU 1: ")
    assert fact.reason.endswith("Unknown Error")
