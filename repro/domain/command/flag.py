"""One written flag: its canonical name, its spelling, its value, and the tokens that write it.

The tokens of a flag that was read are kept exactly; those of a flag that was set are made here, in the spelling that
the command used before where that is possible.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from repro.domain.command.flag_names import canonical, read_name
from repro.domain.command.flag_spec import FlagKind

FlagValue: TypeAlias = str | bool | tuple[str, ...] | None
"""True and False: `--x`, `--no-x` written; str: one value; tuple: several values or a repeated flag; None: absent."""

_FLAG_NAME = re.compile(r"--?[A-Za-z][^\s=]*(=|\Z)")


@dataclass(frozen=True)
class Flag:
    """A flag as written. `name` is canonical ("--tensor-parallel-size"; "--compilation-config.level" for a dotted
    form), `written` is the name as it stood there ("-tp"), `known` is False for a name that no version of vLLM is
    known to have. Two flags are equal when they mean the same in the same spelling; `--x=1` equals `--x 1`.
    """

    name: str
    written: str
    value: FlagValue
    known: bool = True
    tokens: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def argv(self) -> tuple[str, ...]:
        """The tokens that write this flag."""
        return self.tokens or _render(self.written, self.value, joined=False)

    @property
    def joined(self) -> bool:
        """True where name and value stood in one token (`--x=1`, `-O3`)."""
        return len(self.tokens) == 1 and self.tokens[0] != self.written


def looks_like_flag(token: str) -> bool:
    """argparse's rule: begins with a dash and is neither a negative number nor a text with spaces."""
    return _FLAG_NAME.match(token) is not None


def make_flag(name: str, value: FlagValue, like: Flag | None = None) -> Flag:
    """A flag set to a value that is not None, in the spelling of `like` (an earlier occurrence) where that still fits.

    Raises ValueError for several values of a flag that takes one.
    """
    target = canonical(name)
    spelling = read_name(target)
    value = _fitting(target, value)
    keep = like is not None and not read_name(like.written).negated and value is not False
    written = like.written if like is not None and keep else target
    if written == "-O":
        written = target
    if value is False:
        written = "--no-" + target[2:]
    tokens = _render(written, value, joined=like is not None and like.joined)
    return Flag(target, written, value, spelling.spec is not None, tokens)


def _fitting(name: str, value: FlagValue) -> FlagValue:
    spec = read_name(name).spec
    if spec is None or "." in name:
        return value
    match spec.kind:
        case FlagKind.SEVERAL | FlagKind.REPEATED:
            return (value,) if isinstance(value, str) else value
        case _:
            if isinstance(value, tuple):
                if len(value) != 1:
                    raise ValueError(f"{name} takes one value, not {len(value)}")
                return value[0]
            return value


def _render(written: str, value: FlagValue, joined: bool) -> tuple[str, ...]:
    if isinstance(value, tuple):
        if len(value) != 1:
            return (written, *value)
        value = value[0]
    if isinstance(value, str):
        if joined or looks_like_flag(value):
            return (f"{written}={value}",)
        return (written, value)
    return (written,)
