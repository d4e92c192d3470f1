"""Tokens after the program -> flags, the model and what vLLM would not accept.

Follows argparse as vLLM uses it. Nothing is refused here: a typo may be the very fault that is searched, so an
unknown flag is kept, and its value is the next token that is no flag.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from repro.domain.command.flag import Flag, FlagValue, looks_like_flag
from repro.domain.command.flag_names import Spelling, read_name
from repro.domain.command.flag_spec import FlagKind

_TRUTH = {"true": True, "false": False}
_OPTIMISATION = re.compile(r"-O=?([^.=].*)", re.DOTALL)  # -O3, -O=3, -Odecode; not -O.level=3


@dataclass(frozen=True)
class Arguments:
    """What stands after the program. `model_position` is the number of flags before the first positional, None where
    there is none; `extras` are further positionals, which vLLM refuses."""

    flags: tuple[Flag, ...]
    model: str | None
    model_position: int | None
    extras: tuple[str, ...]


def read_arguments(tokens: Sequence[str]) -> Arguments:
    """Understand the tokens after `vllm serve` (or after the module of the API server)."""
    flags: list[Flag] = []
    positionals: list[str] = []
    position: int | None = None
    at = 0
    only_positionals = False
    while at < len(tokens):
        token = tokens[at]
        if token == "--" and not only_positionals:
            only_positionals = True
            at += 1
        elif only_positionals or not looks_like_flag(token):
            position = len(flags) if position is None else position
            positionals.append(token)
            at += 1
        else:
            flag, used = _read_flag(tokens, at)
            flags.append(flag)
            at += used
    named = [f.value for f in flags if f.name == "--model" and isinstance(f.value, str)]
    if named:
        return Arguments(tuple(flags), named[-1], position, tuple(positionals))
    model = positionals[0] if positionals else None
    return Arguments(tuple(flags), model, position, tuple(positionals[1:]))


def _read_flag(tokens: Sequence[str], at: int) -> tuple[Flag, int]:
    """The flag that begins at `at`, and how many tokens it takes."""
    token = tokens[at]
    level = _OPTIMISATION.fullmatch(token)
    if level:
        return _flag("-O", read_name("-O"), level[1], (token,)), 1
    written, joined, value = _split_joined(token)
    spelling = read_name(written)
    if joined:
        return _flag(written, spelling, _joined_value(spelling, value), (token,)), 1
    if written == "-O" and at + 1 < len(tokens) and tokens[at + 1] not in ("0", "1", "2", "3"):
        spelling = read_name("--compilation-config")
    following, used = _values_after(tokens, at + 1, spelling)
    return _flag(written, spelling, following, tuple(tokens[at : at + 1 + used])), 1 + used


def _flag(written: str, spelling: Spelling, value: FlagValue, tokens: tuple[str, ...]) -> Flag:
    fits = spelling.spec is not None and not (spelling.negated and spelling.spec.kind is not FlagKind.BOOLEAN)
    return Flag(spelling.name, written, value, fits, tokens)


def _split_joined(token: str) -> tuple[str, bool, str]:
    """("--x", True, "v") for `--x=v`, ("-n", True, "2") for `-n2`, ("--x", False, "") for a name alone."""
    name, equals, value = token.partition("=")
    if equals:
        return name, True, value
    short = not token.startswith("--") and "." not in token and read_name(token).spec is None
    if short and len(token) > 2 and read_name(token[:2]).spec is not None:
        return token[:2], True, token[2:]
    return token, False, ""


def _joined_value(spelling: Spelling, value: str) -> FlagValue:
    if spelling.spec is None or spelling.path:
        return value
    match spelling.spec.kind:
        case FlagKind.SEVERAL | FlagKind.REPEATED:
            return (value,)
        case FlagKind.BOOLEAN | FlagKind.SWITCH:
            return _TRUTH.get(value.lower(), value)
        case FlagKind.OPTIONAL | FlagKind.VALUE | FlagKind.JSON:
            return value


def _values_after(tokens: Sequence[str], start: int, spelling: Spelling) -> tuple[FlagValue, int]:
    """The value that follows a flag's name, and how many tokens it takes; True where a value is missing."""
    free = list(itertools.takewhile(lambda t: t != "--" and not looks_like_flag(t), tokens[start:]))
    if spelling.path:
        return (tokens[start], 1) if start < len(tokens) else (True, 0)
    if spelling.negated:
        return False, 0
    kind = spelling.spec.kind if spelling.spec is not None else FlagKind.OPTIONAL
    match kind:
        case FlagKind.BOOLEAN | FlagKind.SWITCH:
            truth = _TRUTH.get(free[0].lower()) if free else None
            return (True, 0) if truth is None else (truth, 1)
        case FlagKind.SEVERAL:
            return tuple(free), len(free)
        case FlagKind.REPEATED:
            return (tuple(free[:1]), 1) if free else (True, 0)
        case FlagKind.OPTIONAL | FlagKind.VALUE | FlagKind.JSON:
            return (free[0], 1) if free else (True, 0)
