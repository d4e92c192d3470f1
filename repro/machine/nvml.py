"""The handle on NVIDIA's management library: opened for one reading, closed after it.

The library object is returned as it is (the `nvml*` functions of the `pynvml` module), so that a test can give its own.
Opening and closing are two calls and no `with`: a library in which a call hangs must not be closed under it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

ANSWER_S = 2.0  # an idle driver loads its state within one; one that hangs must not hold up a search or a snapshot


class NvmlUnavailable(Exception):
    """There is no usable NVIDIA driver here; the text says why."""


def open_nvml(library: Any = None) -> Any:
    """The initialised library. Raises NvmlUnavailable where the binding, the library or the driver is missing."""
    if library is None:
        try:
            import pynvml
        except ImportError as error:
            raise NvmlUnavailable(f"the NVML binding is not installed ({error})") from error
        library = pynvml
    try:
        library.nvmlInit()
    except Exception as error:  # the binding's own error types differ between its versions
        raise NvmlUnavailable(f"NVML: {error}") from error
    return library


def close_nvml(library: Any) -> None:
    """Give the handle back; a library that refuses has nothing more to give."""
    with suppress(Exception):  # as above
        library.nvmlShutdown()


def gpu_names(library: Any = None, answer_s: float = ANSWER_S) -> tuple[str, ...]:
    """What the driver calls this machine's GPUs, one entry each; () where it does not tell all within `answer_s`."""
    names: list[str] = []

    def ask() -> None:
        with suppress(Exception):  # a hint alone: what is wrong with the driver is told by snapshot and check
            opened = open_nvml(library)
            handles = [opened.nvmlDeviceGetHandleByIndex(i) for i in range(opened.nvmlDeviceGetCount())]
            told = [opened.nvmlDeviceGetName(handle) for handle in handles]
            close_nvml(opened)
            names.extend(name.decode("utf-8", "replace") if isinstance(name, bytes) else name for name in told)

    asking = threading.Thread(target=ask, name="nvml-names", daemon=True)
    asking.start()
    asking.join(answer_s)
    return () if asking.is_alive() else tuple(names)
