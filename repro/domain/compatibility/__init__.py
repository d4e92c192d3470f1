"""Whether an environment can work at all: facts against a recipe's conditions, link by link."""

from repro.domain.compatibility.chain import Chain, Link, Place, RuleOutcome, RuleResult
from repro.domain.compatibility.check import check
from repro.domain.compatibility.conditions import (
    CommandConditions,
    Conditions,
    GoneVariable,
    GpuKind,
    ImageConditions,
    RefusedFlag,
    SelfBuilt,
)
from repro.domain.compatibility.node import Node

__all__ = [
    "Chain",
    "CommandConditions",
    "Conditions",
    "GoneVariable",
    "GpuKind",
    "ImageConditions",
    "Link",
    "Node",
    "Place",
    "RefusedFlag",
    "RuleOutcome",
    "RuleResult",
    "SelfBuilt",
    "check",
]
