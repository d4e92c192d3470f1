"""The compatibility chain in a line or two, for whoever shows a snapshot."""

from __future__ import annotations

from repro.cli.check_run import recipe_for, today
from repro.cli.scenes import FrozenScene, facts_by_name
from repro.domain.compatibility import RuleOutcome, check
from repro.errors import ReproError
from repro.recipe.ask import conditions_of
from repro.recipe.find import find_recipe
from repro.snapshot.capture import Snapshot


def broken_links(snapshot: Snapshot) -> tuple[str, ...]:
    """The first broken link with its mend, and how much is not known; () where every link holds."""
    node = FrozenScene(snapshot.id, facts_by_name(snapshot.facts)).node
    try:
        name, _ = recipe_for([node], None)
        chain = check([node], conditions_of(find_recipe(name)), today=today())
    except ReproError as error:
        return (f"not checked: {error.message}",)
    lines = []
    if (broken := chain.headline) is not None and broken.link is not None:
        lines.append(f"broken at the {broken.link.heading}: {broken.seen} (recipe {name}); {broken.mend}")
    unknown = [r for r in chain.results if r.outcome is RuleOutcome.UNKNOWN and not r.advice]
    if unknown:
        lines.append(f"{len(unknown)} of {len(chain.results)} rules not known; `repro check` tells which")
    return tuple(lines)
