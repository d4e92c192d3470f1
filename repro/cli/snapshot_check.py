"""Puts a fresh snapshot to the compatibility chain, for the one line that `repro snapshot` says about it."""

from __future__ import annotations

from datetime import datetime, timezone

from repro.cli.check_run import recipe_for
from repro.cli.snapshot_text import Checked
from repro.domain.compatibility import Node, RuleOutcome, check
from repro.errors import ReproError
from repro.recipe.ask import conditions_of
from repro.recipe.find import find_recipe
from repro.snapshot.capture import Snapshot

# Without one of these there is no server to judge, only a host.
_SERVER = ("process.argv", "container.argv", "command.argv", "configuration.arguments")


def check_snapshot(snapshot: Snapshot) -> Checked | None:
    """The chain's answer by the recipe that fits the model; None for a host without a server."""
    if not any(snapshot.fact(name).known for name in _SERVER):
        return None
    facts = {f"{group}.{name}": fact for group, members in snapshot.facts.items() for name, fact in members.items()}
    nodes = [Node(str(snapshot.fact("host.hostname").value or "this host"), facts)]
    try:
        name, _ = recipe_for(nodes, None)
        conditions = conditions_of(find_recipe(name))
    except ReproError:
        return None
    chain = check(nodes, conditions, today=datetime.fromtimestamp(snapshot.started, timezone.utc).date())
    rules = [rule for rule in chain.results if not rule.advice]
    broken = [rule for rule in rules if rule.outcome is RuleOutcome.BROKEN]
    return Checked(
        recipe=name,
        broken=tuple(f"{rule.link.heading if rule.link else rule.id}: {rule.seen}" for rule in broken),
        unknown=sum(rule.outcome is RuleOutcome.UNKNOWN for rule in rules),
    )
