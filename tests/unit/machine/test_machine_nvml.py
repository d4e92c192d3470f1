"""The names of this machine's GPUs: quickly, or not at all."""

from __future__ import annotations

import pytest

from repro.machine.nvml import gpu_names
from tests.fakes.nvml import FakeNvml


def test_every_gpu_is_named_once_and_the_library_given_back() -> None:
    library = FakeNvml(2, name=b"NVIDIA H200")
    assert gpu_names(library) == ("NVIDIA H200", "NVIDIA H200")
    assert library.opened == 0


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetName"])
def test_a_driver_that_does_not_tell_gives_none(call: str) -> None:
    assert gpu_names(FakeNvml(refuses=[call])) == ()


def test_a_lost_gpu_leaves_the_kind_of_machine_unknown() -> None:
    assert gpu_names(FakeNvml(8, lost=[7])) == ()


def test_a_driver_that_hangs_is_not_waited_for() -> None:
    library = FakeNvml(hangs=["nvmlDeviceGetName"])
    try:
        assert gpu_names(library, answer_s=0.1) == ()
    finally:
        library.release.set()
