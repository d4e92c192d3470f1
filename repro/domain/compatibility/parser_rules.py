"""Parsers: the model's own for tools and reasoning, or none. A wrong one starts well and spoils every answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from repro.domain.command import Command
from repro.domain.compatibility.chain import Link, RuleResult
from repro.domain.compatibility.command_rules import LEARN_COMMAND, of_command, shown
from repro.domain.compatibility.conditions import Conditions
from repro.domain.compatibility.node import Node
from repro.domain.compatibility.rule import Finding, held, on_every_node
from repro.domain.fingerprint import Fact


def parser_rules(nodes: Sequence[Node], conditions: Conditions) -> Iterator[RuleResult]:
    """The parsers of tools and reasoning: the model's own, or none."""
    asked = conditions.command
    if asked.tool_parser is not None:
        yield _parser(nodes, "parsers.tools", "--tool-call-parser", asked.tool_parser)
    if asked.reasoning_parser is not None:
        yield _parser(nodes, "parsers.reasoning", "--reasoning-parser", asked.reasoning_parser)
    yield _pairing(nodes)


def _parser(nodes: Sequence[Node], id: str, flag: str, wanted: str) -> RuleResult:
    def look(command: Command, fact: Fact, node: Node) -> Finding:  # noqa: ARG001
        written = command.flag(flag)
        return held(written in (None, wanted), shown(flag, written), fact)

    return on_every_node(
        nodes,
        of_command(look),
        id=id,
        link=Link.PARSERS,
        wanted=f"{flag} {wanted}, or none",
        mend=f"write {flag} {wanted}; another model's parser loses calls or leaks markers",
        learn=LEARN_COMMAND,
    )


def _pairing(nodes: Sequence[Node]) -> RuleResult:
    def look(command: Command, fact: Fact, node: Node) -> Finding:  # noqa: ARG001
        automatic, parser = command.flag("--enable-auto-tool-choice"), command.flag("--tool-call-parser")
        if automatic is True and parser is None:
            return held(False, "--enable-auto-tool-choice without --tool-call-parser", fact)
        if parser is not None and automatic is not True:
            return held(False, "--tool-call-parser without --enable-auto-tool-choice", fact)
        return held(True, "tool calls on, with a parser" if parser else "tool calls are not asked for", fact)

    return on_every_node(
        nodes,
        of_command(look),
        id="parsers.pairing",
        link=Link.PARSERS,
        wanted="--enable-auto-tool-choice and --tool-call-parser together, or neither",
        mend="write both: without a parser vLLM refuses to start, without the switch tool_choice=auto is refused",
        learn=LEARN_COMMAND,
    )
