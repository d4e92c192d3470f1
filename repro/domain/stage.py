"""The stages of a vLLM start-up, in the order that vLLM really walks through them.

The values are those of the user's guide; the order is vLLM's own: it forms its communication group before it loads
weights (vllm/v1/worker/gpu_worker.py, `init_device` before `load_model`).
"""

from __future__ import annotations

from enum import Enum


class Stage(str, Enum):
    """The area that a failure's cause belongs to, or what a start-up has proven done. Declared in time order."""

    CONTAINER_INIT = "container_init"
    DEVICE_RECOGNITION = "device_recognition"
    COMM_GROUP = "comm_group"
    WEIGHT_ACCESS = "weight_access"
    ENGINE_INIT = "engine_init"
    API_READY = "api_ready"
    SERVING = "serving"
    NONE = "none"

    def __str__(self) -> str:
        return self.value

    @property
    def position(self) -> int:
        """Place in time order, 0 for the first; `none` has no place and is -1."""
        return -1 if self is Stage.NONE else STARTUP_ORDER.index(self)


STARTUP_ORDER: tuple[Stage, ...] = tuple(s for s in Stage if s is not Stage.NONE)
