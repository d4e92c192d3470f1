"""What differs between two frozen scenes, grouped by what could explain a failure, and what may be concluded from it.

A group has *moved* when a fact of it is known on both sides and differs. A fact that only one side knows is told apart:
it may be the collector that changed. Libraries come with their image, and what the container runtime is with the host:
such a group is told, but does not count as a second thing that moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from repro.domain.command import difference
from repro.domain.compatibility.node import Node
from repro.domain.fingerprint import Fact
from repro.domain.scene_cases import Case, cases_of
from repro.domain.scene_groups import CAUSES, EACH_NODES_OWN, Group, group_of

# What tells one card from another of its kind.
_SERIALS = frozenset({"uuid", "serial", "pci", "pci_bus_id"})
# Keys that differ by themselves: processes of the same program, a virtual machine's memory, a group named after a
# container's id.
_VOLATILE: Mapping[str, frozenset[str]] = {
    "process.libraries": frozenset({"pids"}),
    "host.numa": frozenset({"memory"}),
    "host.cgroup_memory_limit": frozenset({"group"}),
}


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
    nodes = two_hosts(before, now)
    found = [*_facts(before, now, nodes=nodes), *_command(before, now), *_environment(before, now)]
    order = list(Group)
    found.sort(key=lambda d: (order.index(d.group), not d.both_known, d.name))
    seen = Comparison(tuple(d for d in found if not (nodes and d.name in EACH_NODES_OWN)), ())
    told = cases_of(before, now, seen.moved, any_difference=bool(seen.differences), nodes=nodes)
    return Comparison(seen.differences, told)


def two_hosts(a: Node, b: Node) -> bool:
    """Whether these are scenes of two hosts, so of two nodes, and not of one at two times."""
    names = a.fact("host.hostname"), b.fact("host.hostname")
    return names[0].known and names[1].known and names[0].value != names[1].value


def _facts(before: Node, now: Node, *, nodes: bool) -> Iterator[SceneDifference]:
    for name in sorted({*before.facts, *now.facts}):
        group = group_of(name)
        left, right = before.fact(name), now.fact(name)
        volatile = _VOLATILE.get(name, frozenset()) | (_SERIALS if nodes and name == "gpu.devices" else frozenset())
        if volatile:
            left, right = _without(left, volatile), _without(right, volatile)
        if group is not None and not left.same_as(right):
            yield SceneDifference(group, name, left.value, right.value, left.known and right.known)


def _without(objects: Fact, names: frozenset[str]) -> Fact:
    """An object, or a list of them, without the keys that differ between any two scenes."""
    if not objects.known:
        return objects
    several = isinstance(objects.value, list)
    listed = objects.value if several else [objects.value]
    kept = [{key: value for key, value in each.items() if key not in names} for each in listed]
    return Fact(kept if several else kept[0], objects.label, objects.reason)


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


def shown(value: Any) -> str:
    """A value for people: JSON for objects, "absent" for nothing."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "on" if value else "off"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
