"""What is known about one vLLM flag: its names, how it takes values, and what it is about.

The kinds are argparse's own ways of taking values, because vLLM reads its command line with argparse.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class FlagKind(enum.Enum):
    """How a flag takes its value."""

    BOOLEAN = "boolean"  # --x and --no-x
    SWITCH = "switch"  # --x alone
    OPTIONAL = "optional"  # --x or --x VALUE
    VALUE = "value"  # --x VALUE
    SEVERAL = "several"  # --x VALUE VALUE ...
    REPEATED = "repeated"  # --x VALUE --x VALUE
    JSON = "json"  # --x '{"a": {"b": 1}}' or --x.a.b 1


class Trait(enum.Flag):
    """What a flag is about, as far as a search has to know it."""

    NONE = 0
    ORDINAL = enum.auto()  # a whole number of which more or less means something: a threshold can be searched
    LAYOUT = enum.auto()  # how the model is spread over processes, GPUs and nodes
    LISTEN = enum.auto()  # where and how the server is reached
    SECRET = enum.auto()  # the value must never be written


@dataclass(frozen=True)
class FlagSpec:
    """One flag of vLLM. `name` is its long name with dashes; `current` says whether vLLM 0.32 has it.

    `since` and `until` are the first and the last minor version that have it ("0.9"): an empty `since` means from 0.8.5
    or before, an empty `until` of a flag that is not current that it went before 0.8.5.
    """

    name: str
    kind: FlagKind
    aliases: tuple[str, ...] = ()
    traits: Trait = Trait.NONE
    since: str = ""
    until: str = ""
    current: bool = True

    @property
    def ordinal(self) -> bool:
        return Trait.ORDINAL in self.traits

    @property
    def layout(self) -> bool:
        return Trait.LAYOUT in self.traits

    @property
    def listen(self) -> bool:
        return Trait.LISTEN in self.traits

    @property
    def secret(self) -> bool:
        return Trait.SECRET in self.traits

    @property
    def takes_no_value(self) -> bool:
        return self.kind in (FlagKind.BOOLEAN, FlagKind.SWITCH)
