"""Which facts belong together when two scenes are compared, as data, in the order in which they tell."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Group(str, Enum):
    """What a difference belongs to, most telling first."""

    DRIVER = "driver"
    IMAGE = "image"
    LIBRARIES = "libraries"
    FLAGS = "flags"
    ENVIRONMENT = "environment"
    MODEL_FILES = "model files"
    HARDWARE = "GPUs"
    CONTAINER = "container settings"
    HOST = "host"
    SOURCE = "source"
    WORKLOADS = "workloads"

    def __str__(self) -> str:
        return self.value


# Facts by the longest matching beginning of their name. What is not here says nothing about two scenes being the same:
# names of processes, times, logs, and argument lists and environments, which are compared piece by piece below.
GROUP_OF: Mapping[str, Group] = {
    "gpu.driver_version": Group.DRIVER,
    "gpu.cuda_version": Group.DRIVER,
    "container.image": Group.IMAGE,
    "container.image_id": Group.IMAGE,
    "container.repo_digests": Group.IMAGE,
    "container.labels": Group.IMAGE,
    "command.image_id": Group.IMAGE,
    "inside.build": Group.IMAGE,
    "libraries.": Group.LIBRARIES,
    "inside.": Group.LIBRARIES,
    "process.libraries": Group.LIBRARIES,
    "model_files.": Group.MODEL_FILES,
    "gpu.devices": Group.HARDWARE,
    "container.docker": Group.CONTAINER,
    "container.toolkit": Group.CONTAINER,
    "container.runtime": Group.CONTAINER,
    "container.limits": Group.CONTAINER,
    "container.mounts": Group.CONTAINER,
    "container.gpus": Group.CONTAINER,
    "container.devices": Group.CONTAINER,
    "container.network": Group.CONTAINER,
    "container.entrypoint": Group.CONTAINER,
    "host.hostname": Group.HOST,
    "host.kernel": Group.HOST,
    "host.os": Group.HOST,
    "host.cpu": Group.HOST,
    "host.architecture": Group.HOST,
    "host.shm_total": Group.HOST,
    "host.numa": Group.HOST,
    "host.ulimits": Group.HOST,
    "host.cgroup_memory_limit": Group.HOST,
    "source.": Group.SOURCE,
    "gpu.processes": Group.WORKLOADS,
    "gpu.memory_used": Group.WORKLOADS,
    "gpu.utilization": Group.WORKLOADS,
    "gpu.state": Group.WORKLOADS,
    "host.load": Group.WORKLOADS,
    # A virtual machine's memory grows and shrinks with what its neighbours need.
    "host.memory_total": Group.WORKLOADS,
    "host.memory_available": Group.WORKLOADS,
    "host.swap_used": Group.WORKLOADS,
    "host.shm_free": Group.WORKLOADS,
}
# Other groups move by themselves all the time, or say where a scene was taken.
CAUSES = frozenset(Group) - {Group.WORKLOADS}

# What two nodes of one server have each for itself.
EACH_NODES_OWN = frozenset(
    "host.hostname --node-rank --headless --data-parallel-rank --data-parallel-start-rank env:VLLM_HOST_IP "
    "env:HOSTNAME env:RANK env:LOCAL_RANK env:NODE_RANK".split()
)


def group_of(name: str) -> Group | None:
    """The group of a fact; None for one that is not compared."""
    if name in GROUP_OF:
        return GROUP_OF[name]
    prefix, dot, _ = name.partition(".")
    return GROUP_OF.get(prefix + dot)
