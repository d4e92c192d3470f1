"""The chain for people: the first broken link as headline with its mend, then every rule, then warnings and sources."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from tabulate import tabulate

from repro.domain.compatibility import Chain, Conditions, Link, Place, RuleOutcome, RuleResult

_WIDTH = 100
_SEEN = 68


def chain_text(chain: Chain, conditions: Conditions, nodes: Sequence[str], why: str, origin: str) -> str:
    """Everything that `repro check` prints."""
    lines = [*_headline(chain), "", _table(chain), ""]
    lines += _places(chain)
    lines += _warnings(chain)
    commit = f" at {conditions.commit}" if conditions.commit else ""
    read = f", read {conditions.read.isoformat()}" if conditions.read else ""
    lines.append(f"recipe:  {conditions.recipe} ({conditions.title}), {why}")
    lines.append(f"source:  {conditions.source or 'not told'}{commit}{read}")
    lines.append(f"facts:   {', '.join(nodes)}; build: {origin}")
    return "\n".join(lines)


def _headline(chain: Chain) -> Iterator[str]:
    broken = chain.headline
    if broken is not None and broken.link is not None:
        yield f"BROKEN at the {broken.link.heading}: {broken.seen}"
        yield from _wrapped("wanted", broken.wanted)
        yield from _wrapped("mend", broken.mend)
        before = [
            r.id for r in chain.results if r.outcome is RuleOutcome.UNKNOWN and not r.advice and _before(r, broken)
        ]
        if before:
            yield from _wrapped("not known before it", ", ".join(before))
        if broken.link is not list(Link)[-1]:
            yield "  What stands behind this link is listed, and is not yet meaningful: mend this first, check again."
        return
    unknown = [r for r in chain.results if r.outcome is RuleOutcome.UNKNOWN and not r.advice]
    if unknown:
        yield f"TOO LITTLE KNOWN: {len(unknown)} of {len(chain.results)} rules cannot be answered, none is broken"
        for rule in unknown:
            yield from _wrapped(rule.id, f"{rule.seen}. To learn it: {rule.mend}")
        return
    asked = sum(chain.link_outcome(link) is not None for link in Link)
    which = "Every link" if asked == len(Link) else f"Every link that this recipe asks for ({asked} of {len(Link)})"
    yield f"{which} holds: what fails here fails for another reason. Next: repro bisect"


def _before(rule: RuleResult, broken: RuleResult) -> bool:
    return rule.link is not None and broken.link is not None and rule.link.place < broken.link.place


def _wrapped(label: str, text: str) -> Iterator[str]:
    begin = f"  {label}: "
    yield from textwrap.wrap(text, _WIDTH, initial_indent=begin, subsequent_indent=" " * 6, break_on_hyphens=False)


def _table(chain: Chain) -> str:
    rows = []
    for link in Link:
        for number, rule in enumerate(chain.of(link)):
            title = link.heading if number == 0 else ""
            rows.append([title, rule.id, _outcome(chain, rule), rule.evidence.value, _short(rule.seen)])
        if not chain.of(link):
            rows.append([link.heading, "", "not asked for", "", ""])
    return tabulate(
        rows, headers=["link", "rule", "outcome", "evidence", "seen"], tablefmt="simple", disable_numparse=True
    )


def _outcome(chain: Chain, rule: RuleResult) -> str:
    shown = "warning" if rule.advice and rule.outcome is not RuleOutcome.HOLDS else rule.outcome.value
    return shown if chain.meaningful(rule.link) else f"({shown}, not yet)"


def _short(text: str) -> str:
    return "\n".join(textwrap.wrap(text, _SEEN, break_on_hyphens=False, max_lines=3, placeholder=" …"))


def _places(chain: Chain) -> Iterator[str]:
    """What was compared at which place, and which place is missing."""
    for rule in chain.results:
        missing = [place.value for place, said in rule.places.items() if said is None]
        if missing:
            said = [f"{_PLACE[place]}: {text}" for place, text in rule.places.items() if text is not None]
            yield f"missing: {rule.id}: nothing from {' and '.join(missing)}" + (f"; {'; '.join(said)}" if said else "")


_PLACE = {Place.INSIDE: "inside", Place.HOST: "on the host", Place.LOG: "in the log"}


def _warnings(chain: Chain) -> Iterator[str]:
    for rule in chain.warnings:
        if chain.meaningful(rule.link):
            text = f"{rule.id}: {rule.seen}. Wanted: {rule.wanted}. {rule.mend[:1].upper()}{rule.mend[1:]}."
            yield from textwrap.wrap(
                text, _WIDTH, initial_indent="warning: ", subsequent_indent=" " * 9, break_on_hyphens=False
            )
