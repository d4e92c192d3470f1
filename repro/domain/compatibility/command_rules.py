"""Flags: what the command asks of this vLLM, and what it silently does not ask.

What cannot work breaks the chain; what the recipe only recommends, or what another version would take otherwise, is a
warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from repro.domain.command import Command, FlagValue, as_int, is_layout, spec_of
from repro.domain.command.layout import gpu_count
from repro.domain.compatibility.chain import Link, RuleResult
from repro.domain.compatibility.conditions import CommandConditions, Conditions, RefusedFlag
from repro.domain.compatibility.node import Node
from repro.domain.compatibility.rule import BROKEN, UNKNOWN, Finding, held, on_every_node, unknown
from repro.domain.fingerprint import Fact, Label
from repro.domain.release import at_least, release

CACHING = "--enable-prefix-caching"
LEARN_COMMAND = "give the command after `--`, or take the snapshot of the running server or with --log FILE"


def flag_rules(nodes: Sequence[Node], conditions: Conditions) -> Iterator[RuleResult]:
    """What must be there, what must not, and what is better written out."""
    asked = conditions.command
    yield _known_flags(nodes)
    if any(not is_layout(name) for name in asked.required):
        yield _required_flags(nodes, asked)
    if conditions.gpus:
        yield _layout(nodes, conditions)
    if asked.refused:
        yield _refused(nodes, asked.refused)
    if asked.expected:
        yield _expected_flags(nodes, asked)
    yield _prefix_caching(nodes, asked)


def of_command(look: Callable[[Command, Fact, Node], Finding]) -> Callable[[Node], Finding]:
    """A look at a node's command; without one there is nothing to look at."""

    def at(node: Node) -> Finding:
        command = node.command
        return unknown("the command", node.command_fact) if command is None else look(command, node.command_fact, node)

    return at


def shown(name: str, value: FlagValue) -> str:
    """A flag as it is written: "--no-x" for an off switch, "--x" for an on one, else name and value."""
    if value is True:
        return name
    if value is False:
        return f"--no-{name[2:]}"
    if value is None:
        return f"no {name}"
    return f"{name} {' '.join(value) if isinstance(value, tuple) else value}"


def same_value(seen: FlagValue, wanted: FlagValue) -> bool:
    """Whether a command's value is the recipe's: "1M" is 1048576 written otherwise."""
    if not isinstance(wanted, str) or not isinstance(seen, str):
        return type(seen) is type(wanted) and seen == wanted
    number = as_int(seen)
    return seen == wanted or (number is not None and number == as_int(wanted))


def _known_flags(nodes: Sequence[Node]) -> RuleResult:
    def look(command: Command, fact: Fact, node: Node) -> Finding:
        version = node.vllm_version
        wrong, unsure = [flag.written for flag in command.flags if not flag.known], []
        for name in dict.fromkeys(flag.name for flag in command.flags):
            answer = _in_version(name, str(version.value) if version.known else None)
            wrong += [name] if answer is False else []
            unsure += [name] if answer is None else []
        if wrong:
            return held(False, f"this vLLM does not know {', '.join(dict.fromkeys(wrong))}", fact)
        if unsure:
            return Finding(UNKNOWN, f"only some versions know {', '.join(unsure)}", Label.UNAVAILABLE)
        return held(True, "every flag is known", fact)

    return on_every_node(
        nodes,
        of_command(look),
        id="flags.known",
        link=Link.FLAGS,
        wanted="flags that this vLLM has; it refuses to start on any other",
        mend="take the flag off or write today's name for it (vllm serve --help=all)",
        learn=LEARN_COMMAND,
    )


def _in_version(name: str, version: str | None) -> bool | None:
    """Whether a vLLM of this version has the flag; None where version or flag tell nothing."""
    spec = spec_of(name)
    if spec is None or spec.current:
        return True
    if not spec.until:
        return False
    if version is None or at_least(version, "0.1") is None:
        return None
    return release(spec.since or "0")[:2] <= release(version)[:2] <= release(spec.until)[:2]


def _required_flags(nodes: Sequence[Node], asked: CommandConditions) -> RuleResult:
    wanted = {name: value for name, value in asked.required.items() if not is_layout(name)}

    def look(command: Command, fact: Fact, node: Node) -> Finding:  # noqa: ARG001  every look has these
        wrong = [shown(n, command.flag(n)) for n, value in wanted.items() if not same_value(command.flag(n), value)]
        return held(not wrong, f"the command has {', '.join(wrong)}" if wrong else "all are there", fact)

    return on_every_node(
        nodes,
        of_command(look),
        id="flags.required",
        link=Link.FLAGS,
        wanted=" ".join(shown(name, value) for name, value in wanted.items()),
        mend=f"write {' '.join(shown(name, value) for name, value in wanted.items())}",
        learn=LEARN_COMMAND,
    )


def _layout(nodes: Sequence[Node], conditions: Conditions) -> RuleResult:
    fewest = min(gpu.count for gpu in conditions.gpus)
    devices = [node.devices for node in nodes]
    total = sum(len(found or ()) for found in devices) if None not in devices else None

    def look(command: Command, fact: Fact, node: Node) -> Finding:  # noqa: ARG001
        ranks = gpu_count(command)
        seen = f"a layout of {ranks} ranks (TP x PP x DP)"
        nnodes = command.flag("--nnodes")
        all_seen = not isinstance(nnodes, str) or not nnodes.isdigit() or int(nnodes) <= len(nodes)
        if ranks < fewest or (total is not None and all_seen and ranks > total):
            return held(False, f"{seen} on {total} GPUs" if total is not None else seen, fact)
        if total is None:
            return Finding(UNKNOWN, f"{seen} on GPUs that are not known", Label.UNAVAILABLE)
        return held(True, f"{seen} on {total} GPUs", fact)

    return on_every_node(
        nodes,
        of_command(look),
        id="flags.layout",
        link=Link.FLAGS,
        wanted=f"a layout of {fewest} ranks or more, one GPU for each",
        mend="set --tensor-parallel-size, --pipeline-parallel-size and --data-parallel-size to what the recipe has: "
        + " ".join(shown(n, v) for n, v in conditions.command.required.items() if is_layout(n)),
        learn=f"{LEARN_COMMAND}; on the node itself, where the driver answers",
    )


def _refused(nodes: Sequence[Node], refused: Sequence[RefusedFlag]) -> RuleResult:
    def look(command: Command, fact: Fact, node: Node) -> Finding:
        version = node.vllm_version
        number = str(version.value) if version.known else None
        met = [rule for rule in refused if _meets(command, rule)]
        certain = [rule for rule in met if rule.vllm_below is None or (number and _below(number, rule.vllm_below))]
        if certain:
            return held(False, "; ".join(f"{_pair(rule)}: {rule.reason}" for rule in certain), fact)
        doubtful = [rule for rule in met if number is None or at_least(number, rule.vllm_below or "0") is None]
        if doubtful:
            return Finding(UNKNOWN, f"{_pair(doubtful[0])} depends on vLLM's version, which is not known")
        return held(True, "none of them is there", fact)

    return on_every_node(
        nodes,
        of_command(look),
        id="flags.refused",
        link=Link.FLAGS,
        wanted="no flags that cannot work together on this model",
        mend="take one of them off",
        learn=LEARN_COMMAND,
    )


def _meets(command: Command, rule: RefusedFlag) -> bool:
    value = command.flag(rule.flag)
    if value is None or value is False or (rule.value is not None and not same_value(value, rule.value)):
        return False
    other = command.flag(rule.with_flag) if rule.with_flag else None
    return rule.with_flag is None or (other not in (None, False) and not same_value(other, "1"))


def _below(version: str, limit: str) -> bool:
    return at_least(version, limit) is False


def _pair(rule: RefusedFlag) -> str:
    one = shown(rule.flag, rule.value if rule.value is not None else True)
    return f"{one} with {rule.with_flag}" if rule.with_flag else one


def _expected_flags(nodes: Sequence[Node], asked: CommandConditions) -> RuleResult:
    def look(command: Command, fact: Fact, node: Node) -> Finding:  # noqa: ARG001
        lost = [n for n, value in asked.expected.items() if not same_value(command.flag(n), value)]
        seen = ", ".join(shown(n, command.flag(n)) for n in lost)
        return held(not lost, f"the command has {seen}" if lost else "all are there", fact)

    return on_every_node(
        nodes,
        of_command(look),
        id="flags.expected",
        link=Link.FLAGS,
        wanted="the recipe's own settings for this hardware: "
        + " ".join(shown(n, v) for n, v in asked.expected.items()),
        mend="if that is not meant, write them out: a command derived from another strategy of the recipe loses the "
        "hardware's settings without a word",
        learn=LEARN_COMMAND,
        advice=True,
    )


def _prefix_caching(nodes: Sequence[Node], asked: CommandConditions) -> RuleResult:
    def look(command: Command, fact: Fact, node: Node) -> Finding:
        written = command.flag(CACHING)
        if written is not None:
            return held(True, shown(CACHING, written), fact)
        version = node.vllm_version
        on = caching_default(asked, str(version.value)) if version.known else None
        if on is None:
            return Finding(UNKNOWN, "the command is silent, and the version that decides is not known")
        return Finding(
            BROKEN, f"the command is silent; in vLLM {version.value} it is {'on' if on else 'off'}", fact.label
        )

    return on_every_node(
        nodes,
        of_command(look),
        id="flags.prefix_caching",
        link=Link.FLAGS,
        wanted=f"{CACHING} or --no-{CACHING[2:]} written out, since the default changed between versions",
        mend="write out which of the two is meant, so that another image cannot switch it silently",
        learn=LEARN_COMMAND,
        advice=True,
    )


def caching_default(asked: CommandConditions, version: str) -> bool | None:
    """Whether prefix caching is on in this version when the command is silent; None for a number without meaning."""
    if at_least(version, "0.1") is None:
        return None
    below = sorted((rule for rule in asked.prefix_caching_default if rule[0]), key=lambda rule: release(rule[0]))
    for limit, on in below:
        if release(version) < release(limit):
            return on
    return next((on for limit, on in asked.prefix_caching_default if not limit), True)
