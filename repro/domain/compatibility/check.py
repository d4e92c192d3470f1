"""Facts against a recipe's conditions: every rule of every link, in the chain's order."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from repro.domain.compatibility.chain import Chain, RuleResult
from repro.domain.compatibility.command_rules import flag_rules
from repro.domain.compatibility.conditions import Conditions, SelfBuilt
from repro.domain.compatibility.environment_rules import environment_rules
from repro.domain.compatibility.hardware_rules import gpu_rules, model_rules
from repro.domain.compatibility.image_rules import image_rules, version_rules
from repro.domain.compatibility.machine_rules import cuda_rules, driver_rules, expected_nodes, runtime_rules
from repro.domain.compatibility.node import Node
from repro.domain.compatibility.parser_rules import parser_rules
from repro.domain.compatibility.rule import BROKEN, HOLDS, UNKNOWN
from repro.domain.fingerprint import Label

OLDEST_RECIPE = 60
"""Days. The Kimi K3 recipe was changed 24 times in its first four weeks; two months later it is another recipe."""


def check(nodes: Sequence[Node], conditions: Conditions, *, today: date, self_built: SelfBuilt | None = None) -> Chain:
    """The chain for these nodes, one for each node of the server."""
    expected = expected_nodes(nodes, conditions)
    rules = (
        *driver_rules(nodes, conditions, expected),
        *runtime_rules(nodes, conditions),
        *cuda_rules(nodes, conditions),
        *image_rules(nodes, conditions, self_built, expected),
        *version_rules(nodes, conditions),
        *gpu_rules(nodes, conditions, expected),
        *model_rules(nodes, conditions, expected),
        *flag_rules(nodes, conditions),
        *environment_rules(nodes, conditions.command),
        *parser_rules(nodes, conditions),
    )
    return Chain((*rules, recipe_age(conditions, today)))


def recipe_age(conditions: Conditions, today: date) -> RuleResult:
    """A warning for a recipe that was read long ago, or by nobody knows when."""
    wanted = f"a recipe read within {OLDEST_RECIPE} days"
    mend = "read its source again and bring the file up to date, with the day in origin.read"
    if conditions.read is None:
        outcome, seen = UNKNOWN, f"recipe {conditions.recipe} does not say when it was read"
    else:
        days = (today - conditions.read).days
        seen = f"recipe {conditions.recipe} was read {conditions.read.isoformat()}, {days} days ago"
        outcome = HOLDS if days <= OLDEST_RECIPE else BROKEN
    return RuleResult(
        id="recipe.age",
        link=None,
        outcome=outcome,
        evidence=Label.DECLARED if conditions.read else Label.UNAVAILABLE,
        seen=seen,
        wanted=wanted,
        mend="" if outcome is HOLDS else mend,
        advice=True,
    )
