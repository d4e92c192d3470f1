"""What differs between two scenes, and the cases that have a name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.domain.compatibility import Node
from repro.domain.fingerprint import Fact
from repro.domain.scene_difference import Comparison, compare_scenes
from repro.domain.scene_groups import Group
from tests.fakes.fitting_facts import fitting_argv, fitting_nodes, fitting_values, libraries

RECIPE = "kimi-k3-b300"
OTHER_ID = "sha256:" + "cd" * 32
COMPAT = "/usr/local/cuda/compat/libcuda.so.580.82.07"
TAG = "vllm/vllm-openai:kimi-k3"


def scene(**changed: Any) -> Node:
    """A good server; `gpu__driver_version` stands for `gpu.driver_version`."""
    return fitting_nodes(RECIPE, {name.replace("__", "."): value for name, value in changed.items()})[0]


def compared(before: Node, now: Node) -> Comparison:
    return compare_scenes(before, now)


def cases(comparison: Comparison) -> list[str]:
    return [case.id for case in comparison.cases]


def test_a_scene_is_the_same_as_itself() -> None:
    found = compared(scene(), scene())
    assert (found.same, found.differences, cases(found)) == (True, (), ["nothing_moved"])


@pytest.mark.parametrize(
    ("changed", "group", "name"),
    [
        ({"gpu__cuda_version": "13.1"}, Group.DRIVER, "gpu.cuda_version"),
        ({"container__image_id": OTHER_ID}, Group.IMAGE, "container.image_id"),
        ({"inside__torch": "2.13.0+cu130"}, Group.LIBRARIES, "inside.torch"),
        ({"process__argv": [*fitting_argv(RECIPE), "--seed", "1"]}, Group.FLAGS, "--seed"),
        ({"process__environment": {"NCCL_DEBUG": "INFO"}}, Group.ENVIRONMENT, "env:NCCL_DEBUG"),
        ({"model_files__revision": "a590ce09"}, Group.MODEL_FILES, "model_files.revision"),
        ({"gpu__devices": []}, Group.HARDWARE, "gpu.devices"),
        ({"container__limits": {}}, Group.CONTAINER, "container.limits"),
        ({"host__kernel": "Linux 6.8"}, Group.HOST, "host.kernel"),
    ],
)
def test_one_thing_that_moved_is_named_with_its_group(changed: dict[str, Any], group: Group, name: str) -> None:
    found = compared(scene(), scene(**changed))
    assert found.moved == (group,)
    assert name in [d.name for d in found.of(group)]
    assert cases(found) == ["one_moved"]
    assert str(group) in found.cases[0].what


def test_two_things_at_once_cannot_be_told_apart() -> None:
    now = scene(gpu__driver_version="590.44", container__image_id=OTHER_ID, process__libraries=None)
    found = compared(scene(), now)
    assert found.moved == (Group.DRIVER, Group.IMAGE)
    assert cases(found)[-1] == "several_moved"
    assert "driver, image; nothing can be attributed" in found.cases[-1].what


def test_libraries_that_came_with_an_image_are_no_second_thing() -> None:
    now = scene(container__image_id=OTHER_ID, inside__torch="2.13.0+cu130", inside__vllm="0.32.0")
    found = compared(scene(), now)
    assert found.moved == (Group.IMAGE, Group.LIBRARIES)
    assert "one_moved" in cases(found)


def test_the_same_tag_with_another_image_is_named() -> None:
    before, now = scene(container__image=TAG), scene(container__image=TAG, container__image_id=OTHER_ID)
    found = compared(before, now)
    assert cases(found) == ["same_tag_other_image", "one_moved"]
    assert "vllm/vllm-openai:kimi-k3" in found.cases[0].what
    pinned = compared(scene(), scene(container__image_id=OTHER_ID))
    assert "same_tag_other_image" not in cases(pinned)


def test_an_old_container_on_a_new_driver_is_named() -> None:
    now = scene(gpu__driver_version="590.44.01", gpu__cuda_version="13.1")
    found = compared(scene(), now)
    assert cases(found)[0] == "old_libraries"
    assert "was 580.82.07 and is 590.44.01, and the server still maps libcuda 580.82.07" in found.cases[0].what
    compat = scene(gpu__driver_version="590.44.01", process__libraries=libraries(COMPAT))
    assert "old_libraries" not in cases(compared(scene(), compat))


def test_the_same_libraries_in_another_process_are_the_same() -> None:
    mapped = [{**each, "pids": [4711]} for each in fitting_values(RECIPE)["process.libraries"]]
    assert compared(scene(), scene(process__libraries=mapped)).same


def test_what_only_one_side_knows_has_not_moved() -> None:
    found = compared(scene(), scene(gpu__driver_version=None, process__argv=None, process__environment=None))
    assert found.same
    assert cases(found) == ["nothing_known_moved"]
    assert {d.name for d in found.differences} == {"gpu.driver_version", "command", "environment"}


def test_memory_that_a_virtual_machine_was_given_is_no_cause() -> None:
    numa = [[{"node": 0, "cpus": "0-1", "memory": size}] for size in (13, 14)]
    found = compared(scene(host__numa=numa[0], host__memory_total=1), scene(host__numa=numa[1], host__memory_total=2))
    assert found.same
    moved = [{"node": 0, "cpus": "0-3", "memory": 13}]
    assert compared(scene(host__numa=numa[0]), scene(host__numa=moved)).moved == (Group.HOST,)


def test_load_alone_is_no_cause() -> None:
    before, now = scene(host__load=[1.0, 1.0, 1.0]), scene(host__load=[9.0, 2.0, 1.0])
    found = compared(before, now)
    assert (found.same, cases(found)) == (True, ["nothing_known_moved"])


def test_flags_are_compared_by_meaning_and_not_by_spelling() -> None:
    long = [*fitting_argv(RECIPE)]
    short = ["-tp" if word == "--tensor-parallel-size" else word for word in long]
    short[short.index("1048576")] = "1M"
    assert compared(scene(process__argv=long), scene(process__argv=short)).same


def test_the_most_telling_group_comes_first_and_json_keeps_the_order() -> None:
    now = scene(
        host__kernel="Linux 6.8", process__argv=[*fitting_argv(RECIPE), "--seed", "1"], gpu__driver_version="590.44"
    )
    shown = json.loads(json.dumps(compared(scene(), now).as_json()))
    assert [part["group"] for part in shown["groups"]] == ["driver", "flags", "host"]
    assert shown["moved"] == ["driver", "flags", "host"]
    seed = shown["groups"][1]["differences"][0]
    assert seed == {"name": "--seed", "before": None, "now": "1", "both_known": True}


def test_two_nodes_must_be_equal_but_for_what_is_each_ones_own() -> None:
    first, second = fitting_nodes("kimi-k3-b200-2node")
    found = compared(first, second)
    assert (found.differences, cases(found)) == ((), ["nodes_equal"])
    ranked = {"process.argv": [*fitting_argv("kimi-k3-b200-2node"), "--node-rank", "1", "--headless"]}
    assert compared(first, fitting_nodes("kimi-k3-b200-2node", ranked, only_node=1)[1]).same
    other = fitting_nodes("kimi-k3-b200-2node", {"gpu.driver_version": "590.44"}, only_node=1)[1]
    unequal = compared(first, other)
    assert unequal.moved == (Group.DRIVER,)
    assert cases(unequal) == ["old_libraries", "nodes_differ"]


VALUES = st.one_of(st.none(), st.sampled_from(["x", "590.44"]))


@given(st.dictionaries(st.sampled_from(sorted(set(fitting_values(RECIPE)) - {"process.argv"})), VALUES))
def test_comparison_is_symmetric(changed: dict[str, Any]) -> None:
    kept = {name: value for name, value in changed.items() if name not in ("process.environment", "triage.diagnosis")}
    other = fitting_nodes(RECIPE, kept)[0]
    there, back = compare_scenes(scene(), other), compare_scenes(other, scene())
    assert there.moved == back.moved
    assert {d.name for d in there.differences} == {d.name for d in back.differences}


def test_masked_secrets_compare_like_values() -> None:
    masked = Fact.measured({"HF_TOKEN": "***masked:hf_token***"})
    a, b = (Node("n", {"process.environment": masked}) for _ in range(2))
    assert compare_scenes(a, b).same
