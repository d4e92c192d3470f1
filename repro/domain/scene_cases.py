"""Situations that have a name when two scenes are compared: what each means, and what to do.

A wrong conclusion costs days, so how many things moved is told before what they were.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.domain.compatibility.image_rules import name_and_tag
from repro.domain.compatibility.node import Node
from repro.domain.scene_groups import Group


@dataclass(frozen=True)
class Case:
    """A situation that has a name: what it means, and what to do."""

    id: str
    what: str
    mend: str

    def as_json(self) -> dict[str, str]:
        return {"id": self.id, "what": self.what, "mend": self.mend}


def cases_of(
    before: Node, now: Node, moved: tuple[Group, ...], *, any_difference: bool, nodes: bool
) -> tuple[Case, ...]:
    """The named situations that two scenes amount to. `nodes`: they are of two hosts, which must be equal."""
    found = (_old_libraries(before, now), _same_tag(before, now), _attribution(moved, any_difference, nodes))
    return tuple(case for case in found if case is not None)


def _same_tag(before: Node, now: Node) -> Case | None:
    """One tag, two images."""
    names = [str(node.fact("container.image").value) for node in (before, now)]
    ids = [node.image_id for node in (before, now)]
    if not ids[0].known or not ids[1].known or ids[0].value == ids[1].value:
        return None
    if names[0] != names[1] or names[0] == "None" or "@" in names[0]:
        return None
    name, tag = name_and_tag(names[0])
    return Case(
        "same_tag_other_image",
        f"the tag {name}:{tag} is the same and the image behind it is another "
        f"({str(ids[0].value)[:19]} -> {str(ids[1].value)[:19]})",
        "a tag pins nothing: start both from the digest of the first, and see whether the failure stays",
    )


def _attribution(moved: tuple[Group, ...], any_difference: bool, nodes: bool) -> Case:
    """What may be concluded from how many things moved."""
    causes = independent(moved)
    if nodes and causes:
        return Case(
            "nodes_differ",
            f"the nodes differ in {', '.join(causes)}; ranks on unequal nodes fail far from the cause",
            "make them equal, the first of these first; then compare again",
        )
    if len(causes) > 1:
        return Case(
            "several_moved",
            f"{len(causes)} things moved at once: {', '.join(causes)}; nothing can be attributed to any one of them",
            "put all but one back and try again; `repro bisect` does this for flags and environment",
        )
    if causes:
        return Case("one_moved", f"only one thing moved: {causes[0]}", "put it back: if the failure goes, it was this")
    if nodes:
        return Case("nodes_equal", "the nodes are equal in all that both know", "look at links, requests and chance")
    if not any_difference:
        return Case("nothing_moved", "nothing that repro reads differs", "look at requests, load and chance: repeat")
    return Case(
        "nothing_known_moved",
        "nothing moved that both sides know, but load and memory in use",
        "look at neighbours on the GPUs, requests and chance; what one side alone knows is listed, and could differ",
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
