"""The diagnostic settings: what makes vLLM, PyTorch and NCCL say more, each with its reason.

A set of its own: off in proofs and never variables, since what is printed changes what happens in time. Nothing here
changes what is computed or waited for: CUDA_LAUNCH_BLOCKING and TORCH_DISTRIBUTED_DEBUG=DETAIL would hide races.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from repro.domain.command import Command
from repro.domain.scene import Scene


@dataclass(frozen=True)
class Setting:
    """One environment variable and what it is good for."""

    name: str
    value: str
    reason: str


SETTINGS = (
    Setting("VLLM_LOGGING_LEVEL", "DEBUG", "each step of vLLM's start, the addresses it waits at"),
    Setting("NCCL_DEBUG", "INFO", "the reason under NCCL's `unhandled … error`, interfaces, transports"),
    Setting("NCCL_DEBUG_SUBSYS", "INIT,ENV,NET", "how a group is formed, without a line for each operation"),
    Setting("TORCH_CPP_LOG_LEVEL", "INFO", "PyTorch's store and process groups: which rank waits for which"),
    Setting("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000", "the flight recorder: the last operations of each rank"),
    Setting("TORCH_NCCL_DUMP_ON_TIMEOUT", "1", "writes the recorder out (/tmp/nccl_trace_rank_N) when NCCL times out"),
    Setting("PYTHONFAULTHANDLER", "1", "a Python stack where a process is killed by a signal of its own making"),
)


def diagnosed(scene: Scene) -> Scene:
    """The same scene with the diagnostic settings on both of its ends, before whatever the user has set."""
    return replace(scene, production=_with_settings(scene.production), minimal=_with_settings(scene.minimal))


def _with_settings(command: Command) -> Command:
    for setting in SETTINGS:
        command = command.with_environment(setting.name, setting.value)
    return command
