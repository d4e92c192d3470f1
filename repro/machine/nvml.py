"""The handle on NVIDIA's management library: opened for one reading, closed after it.

The library object is returned as it is (the `nvml*` functions of the `pynvml` module), so that a test can give its own.
Opening and closing are two calls and no `with`: a library in which a call hangs must not be closed under it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any


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
