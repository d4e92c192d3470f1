"""What differs between two frozen scenes, grouped by what could explain a failure, and what may be concluded from it.

A group has *moved* when a fact of it is known on both sides and differs. A fact that only one side knows is told apart:
it may be the collector that changed. Libraries come with their image, and what the container runtime is with the host:
such a group is told, but does not count as a second thing that moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from repro.domain.command import difference
from repro.domain.compatibility.image_rules import name_and_tag
from repro.domain.compatibility.node import Node


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
    "host.memory_total": Group.HOST,
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
    "host.memory_available": Group.WORKLOADS,
    "host.swap_used": Group.WORKLOADS,
    "host.shm_free": Group.WORKLOADS,
}
# Other groups move by themselves all the time, or say where a scene was taken.
CAUSES = frozenset(Group) - {Group.WORKLOADS}


@dataclass(frozen=True)
class SceneDifference:
    """One thing that differs. `name` is a fact's, a flag or `env:NAME`; a side is None where it has none.

    `both_known` is false where one side could not be read.
    """

    group: Group
    name: str
    before: Any
    now: Any
    both_known: bool = True

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "before": self.before, "now": self.now, "both_known": self.both_known}


@dataclass(frozen=True)
class Case:
    """A situation that has a name: what it means, and what to do."""

    id: str
    what: str
    mend: str

    def as_json(self) -> dict[str, str]:
        return {"id": self.id, "what": self.what, "mend": self.mend}


@dataclass(frozen=True)
class Comparison:
    """All differences, groups in their order, and the cases that they amount to, most telling first."""

    differences: tuple[SceneDifference, ...]
    cases: tuple[Case, ...]

    @property
    def same(self) -> bool:
        """Nothing differs that both sides know."""
        return not self.moved

    @property
    def moved(self) -> tuple[Group, ...]:
        """The groups in which something moved that could explain a failure."""
        found = {d.group for d in self.differences if d.both_known}
        return tuple(group for group in Group if group in found & CAUSES)

    def of(self, group: Group) -> tuple[SceneDifference, ...]:
        """The differences of one group, those that both sides know first."""
        found = [d for d in self.differences if d.group is group]
        return tuple(sorted(found, key=lambda d: not d.both_known))

    def as_json(self) -> dict[str, Any]:
        return {
            "same": self.same,
            "moved": [group.value for group in self.moved],
            "cases": [case.as_json() for case in self.cases],
            "groups": [
                {"group": group.value, "differences": [d.as_json() for d in self.of(group)]}
                for group in Group
                if self.of(group)
            ],
        }


def compare_scenes(before: Node, now: Node) -> Comparison:
    """Everything that differs between two scenes: facts, flags and environment."""
    found = (*_facts(before, now), *_command(before, now), *_environment(before, now))
    order = list(Group)
    differences = tuple(sorted(found, key=lambda d: (order.index(d.group), not d.both_known, d.name)))
    return Comparison(differences, tuple(_cases(before, now, Comparison(differences, ()))))


def group_of(name: str) -> Group | None:
    """The group of a fact; None for one that is not compared."""
    if name in GROUP_OF:
        return GROUP_OF[name]
    prefix, dot, _ = name.partition(".")
    return GROUP_OF.get(prefix + dot)


def _facts(before: Node, now: Node) -> Iterator[SceneDifference]:
    for name in sorted({*before.facts, *now.facts}):
        group = group_of(name)
        left, right = before.fact(name), now.fact(name)
        if group is not None and not left.same_as(right):
            yield SceneDifference(group, name, left.value, right.value, left.known and right.known)


def _command(before: Node, now: Node) -> Iterator[SceneDifference]:
    """Flag by flag, as vLLM would understand them; where one side has no command, that is one difference."""
    left, right = before.command, now.command
    if left is None or right is None:
        if left is not right:
            yield SceneDifference(
                Group.FLAGS, "command", left.shell() if left else None, right.shell() if right else None, False
            )
        return
    for found in difference(left, right):
        if not found.name.startswith(("env:", "image")):
            group = Group.CONTAINER if found.name.startswith("docker:") else Group.FLAGS
            yield SceneDifference(group, found.name, found.left, found.right)


def _environment(before: Node, now: Node) -> Iterator[SceneDifference]:
    left, right = before.environment, now.environment
    if not left.known or not right.known:
        if left.known != right.known:
            yield SceneDifference(Group.ENVIRONMENT, "environment", left.value, right.value, False)
        return
    for name in sorted({*left.value, *right.value}):
        if left.value.get(name) != right.value.get(name):
            yield SceneDifference(Group.ENVIRONMENT, f"env:{name}", left.value.get(name), right.value.get(name))


def _cases(before: Node, now: Node, seen: Comparison) -> Iterator[Case]:
    if (old := _old_libraries(before, now)) is not None:
        yield old
    names = [str(node.fact("container.image").value) for node in (before, now)]
    ids = [node.image_id for node in (before, now)]
    moved_id = ids[0].known and ids[1].known and ids[0].value != ids[1].value
    if moved_id and names[0] == names[1] and "@" not in names[0]:
        name, tag = name_and_tag(names[0])
        yield Case(
            "same_tag_other_image",
            f"the tag {name}:{tag} is the same and the image behind it is another "
            f"({str(ids[0].value)[:19]} -> {str(ids[1].value)[:19]})",
            "a tag pins nothing: start both from the digest of the first, and see whether the failure stays",
        )
    causes = independent(seen.moved)
    if len(causes) > 1:
        yield Case(
            "several_moved",
            f"{len(causes)} things moved at once: {', '.join(causes)}; nothing can be attributed to any one of them",
            "put all but one back and try again; `repro bisect` does this for flags and environment",
        )
    elif len(causes) == 1:
        yield Case("one_moved", f"only one thing moved: {causes[0]}", "put it back: if the failure goes, it was this")
    elif not seen.differences:
        yield Case("nothing_moved", "nothing that repro reads differs", "look at requests, load and chance: repeat")
    elif not any(d.both_known for d in seen.differences):
        yield Case(
            "not_comparable",
            "nothing differs that both sides know; some facts are known on one side alone",
            "take the second snapshot as the first was taken (--pid, --container, --inside), and compare again",
        )
    else:
        yield Case(
            "workloads_only",
            "nothing moved but load and memory in use",
            "the scene is the same: look at the neighbours on the GPUs, at requests, and at chance",
        )


def independent(moved: tuple[Group, ...]) -> tuple[str, ...]:
    """The groups that count as things of their own: another image brings other libraries with it."""
    brought = {Group.LIBRARIES} if Group.IMAGE in moved else set()
    return tuple(group.value for group in moved if group not in brought)


def _old_libraries(before: Node, now: Node) -> Case | None:
    """The host's driver moved, and the server still maps the driver library of before."""
    mapped, driver, was = now.mapped_library("cuda"), now.driver, before.driver
    if mapped is None or mapped.compat or not driver.known or mapped.version == str(driver.value):
        return None
    moved = was.known and was.value != driver.value
    since = f" was {was.value} and" if moved else ""
    return Case(
        "old_libraries",
        f"the host's driver{since} is {driver.value}, and the server still maps libcuda {mapped.version}: "
        "an old container on a new driver",
        "remove the container and start a new one from the same image; a restart keeps the old libraries",
    )


def shown(value: Any) -> str:
    """A value for people: JSON for objects, "absent" for nothing."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "on" if value else "off"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
