"""Every shipped recipe on facts that fit it, and with one fact broken."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import pytest

from repro.domain.compatibility import Chain, Link, RuleOutcome, check
from repro.recipe.ask import conditions_of
from repro.recipe.find import find_recipe, recipe_names
from tests.fakes.fitting_facts import HARDWARE, fitting_argv, fitting_nodes

TODAY = date(2026, 12, 1)


def chain_of(name: str, changed: dict[str, Any] | None = None, only_node: int | None = None) -> Chain:
    return check(fitting_nodes(name, changed, only_node), conditions_of(find_recipe(name)), today=TODAY)


@pytest.mark.parametrize("name", recipe_names())
def test_a_server_that_fits_its_recipe_holds_in_every_rule(name: str) -> None:
    chain = chain_of(name)
    assert [f"{r.id}: {r.seen}" for r in chain.results if r.outcome is not RuleOutcome.HOLDS] == []
    assert chain.outcome is RuleOutcome.HOLDS
    assert chain.headline is None
    assert all(r.mend == "" for r in chain.results)


def argv_with(name: str, *words: str) -> dict[str, Any]:
    return {"process.argv": [*fitting_argv(name), *words]}


# (recipe, facts that change, the rule that must be the headline)
BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("kimi-k3-b300", {"gpu.driver_version": "575.57.08"}, "driver.version"),
    ("kimi-k3-gb300", {"inside.cuda": "12.9"}, "cuda.runtime"),
    ("kimi-k3-b200-2node", {"inside.vllm": "0.27.0", "triage.diagnosis": {"vllm_version": "0.27.0"}}, "vllm.version"),
    ("kimi-k3-h200-2node", {"container.image": "vllm/vllm-openai:v0.29.0-cu129"}, "image.tag"),
    ("kimi-k3-mi355x", {"container.image": "vllm/vllm-openai-rocm:kimi-k3"}, "image.pinned"),
    ("generic", argv_with("generic", "--no-such-flag", "1"), "flags.known"),
    ("cpu-demo", {"inside.torch": "2.13.0+cu130"}, "cuda.platform"),
]


@pytest.mark.parametrize(("name", "changed", "rule"), BROKEN, ids=[f"{n}-{r}" for n, _, r in BROKEN])
def test_one_broken_fact_is_the_headline(name: str, changed: dict[str, Any], rule: str) -> None:
    chain = chain_of(name, changed)
    assert chain.headline is not None
    assert chain.headline.id == rule
    assert chain.outcome is RuleOutcome.BROKEN
    assert chain.headline.mend


def test_every_recipe_is_broken_by_something() -> None:
    assert {name for name, _, _ in BROKEN} == set(recipe_names()) == set(HARDWARE)


def test_what_stands_on_a_broken_link_means_nothing_yet() -> None:
    chain = chain_of("kimi-k3-b300", {"gpu.driver_version": "570.1", "inside.cuda": "12.9"})
    assert chain.first_broken is Link.DRIVER
    shown = chain.as_json()
    assert [part["link"] for part in shown["links"] if part["meaningful"]] == ["driver"]
    later = next(rule for rule in shown["rules"] if rule["id"] == "cuda.runtime")
    assert (later["outcome"], later["meaningful"]) == ("broken", False)
    assert shown["headline"]["id"] == "driver.version"


def test_the_driver_counts_on_every_node_and_must_be_equal() -> None:
    old = chain_of("kimi-k3-b200-2node", {"gpu.driver_version": "575.57.08", "process.libraries": None}, only_node=1)
    assert old.headline is not None
    assert "node1: driver 575.57.08" in old.headline.seen
    unequal = chain_of("kimi-k3-b200-2node", {"gpu.driver_version": "590.1.1", "process.libraries": None}, only_node=1)
    assert unequal.headline is not None
    assert unequal.headline.id == "driver.equal"
    nodes = fitting_nodes("kimi-k3-b200-2node")[:1]
    half = check(nodes, conditions_of(find_recipe("kimi-k3-b200-2node")), today=TODAY)
    assert half.outcome is RuleOutcome.UNKNOWN
    unknown = {r.id for r in half.results if r.outcome is RuleOutcome.UNKNOWN}
    assert unknown == {"driver.equal", "image.same", "gpu.count", "gpu.memory", "model.same"}


@pytest.mark.parametrize(("days", "warned"), [(0, False), (60, False), (61, True)])
def test_a_recipe_that_was_read_long_ago_warns_and_breaks_nothing(days: int, warned: bool) -> None:
    conditions = conditions_of(find_recipe("kimi-k3-b300"))
    assert conditions.read is not None
    chain = check(fitting_nodes("kimi-k3-b300"), conditions, today=conditions.read + timedelta(days=days))
    assert chain.outcome is RuleOutcome.HOLDS
    assert ("recipe.age" in [r.id for r in chain.warnings]) is warned
