"""How one trial ended: a closed sum type. `Unresolved` says nothing about the configuration: neither good nor bad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from repro.domain.failure import Failure
from repro.domain.stage import Stage


@dataclass(frozen=True)
class Passed:
    """The server became ready and enough requests met their expectations (or the asked stage was passed)."""

    reached: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class Failed:
    """The configuration failed, with its evidence."""

    failure: Failure


@dataclass(frozen=True)
class Unresolved:
    """The trial could not be judged: another job took the GPU, the fingerprint moved, Docker is down.

    `again`: another try may tell; False where the reason would be the same each time (a prompt that cannot be built).
    """

    reason: str
    again: bool = True


Outcome: TypeAlias = Passed | Failed | Unresolved
