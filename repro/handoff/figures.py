"""Values, tallies and error types as a report writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repro.domain.proportion import interval
from repro.handoff.english import say


def percent(share: float) -> str:
    return f"{100 * share:.0f}"


def tally(count: int, of: int) -> str:
    """How often out of how many, with Wilson's interval."""
    low, high = interval(count, of)
    return say("tally", count=count, of=of, low=percent(low), high=percent(high))


def signature(facts: Mapping[str, Any]) -> str:
    """`stage/family` of a finding or a trial; empty where there is no failure."""
    return f"{facts['stage']}/{facts['family']}" if facts.get("stage") else ""
