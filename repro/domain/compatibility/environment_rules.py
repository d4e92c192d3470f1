"""The environment: what must be set, and what is set in vain.

A variable that this version does not read is only a warning in vLLM's log and then has no effect, which makes it
harder to find than a wrong flag: what it was to switch is simply not in force.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from repro.domain.command.environment_table import VERSION, unknown_variables
from repro.domain.compatibility.chain import Link, RuleResult
from repro.domain.compatibility.conditions import CommandConditions, GoneVariable
from repro.domain.compatibility.node import Node
from repro.domain.compatibility.rule import UNKNOWN, Finding, held, on_every_node, unknown
from repro.domain.fingerprint import Label
from repro.domain.release import at_least, release


def environment_rules(nodes: Sequence[Node], asked: CommandConditions) -> Iterator[RuleResult]:
    """Variables that must be set, then those that nobody reads."""
    if asked.required_environment:
        yield _required_environment(nodes, asked.required_environment)
    yield _environment(nodes, asked.gone_environment)


def _required_environment(nodes: Sequence[Node], wanted: Mapping[str, str]) -> RuleResult:
    pairs = " ".join(f"{name}={value}" for name, value in wanted.items())

    def look(node: Node) -> Finding:
        fact = node.environment
        if not fact.known:
            return unknown("the server's environment", fact)
        wrong = [
            f"{name}={fact.value[name]}" if name in fact.value else f"no {name}"
            for name, value in wanted.items()
            if not _enough(fact.value.get(name), value)
        ]
        return held(not wrong, ", ".join(wrong) or "all are set", fact)

    return on_every_node(
        nodes,
        look,
        id="environment.required",
        link=Link.FLAGS,
        wanted=pairs,
        mend=f"set {pairs} (with -e for a container)",
        learn="take the snapshot of the running server, or give the command with NAME=value in front after `--`",
    )


def _enough(seen: object, wanted: str) -> bool:
    """The same value, or more of what is a limit in seconds: more patience than the recipe's does no harm."""
    text = str(seen)
    return text == wanted or (text.isdigit() and wanted.isdigit() and int(text) >= int(wanted) > 1)


def _environment(nodes: Sequence[Node], gone: Sequence[GoneVariable]) -> RuleResult:
    def look(node: Node) -> Finding:
        fact, version = node.environment, node.vllm_version
        if not fact.known:
            return unknown("the server's environment", fact)
        number = str(version.value) if version.known else None
        old = [g for g in gone if g.name in fact.value]
        dead = [g for g in old if number is not None and at_least(number, g.since)]
        unread = [n for n in unknown_variables(fact.value) if n not in {g.name for g in gone}]
        # A name that the table's version does not read may have been read before, and may be read later.
        strange = unread if number is not None and release(number)[:2] == release(VERSION)[:2] else []
        if dead or strange:
            told = [f"{g.name} (gone since {g.since}; {g.instead})" for g in dead]
            told += [f"{name} (not known to vLLM {number})" for name in strange]
            return held(False, f"not read: {', '.join(told)}", fact)
        doubtful = [g.name for g in old if number is None or at_least(number, g.since) is None] + unread
        if doubtful:
            return Finding(UNKNOWN, f"not every version reads {', '.join(doubtful)}", Label.UNAVAILABLE)
        return held(True, "every VLLM_ variable is read by this version", fact)

    return on_every_node(
        nodes,
        look,
        id="environment.known",
        link=Link.FLAGS,
        wanted="VLLM_ variables that this version reads; the others have no effect, with a warning in the log at most",
        mend="take the variable off, or write what replaces it; what it was to switch is not in force",
        learn="take the snapshot of the running server (its environment is read), and see that vLLM's version is known",
    )
