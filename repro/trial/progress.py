"""What happens while trials are carried out, told to whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from repro.domain.trial import Answer, Trial
from repro.domain.variable import Value
from repro.runner.port import Event as LaunchEvent
from repro.runner.port import Observer as LaunchObserver


@dataclass(frozen=True)
class TrialStarted:
    """Trial `number` of the session begins; `launches` says whether it needs a new server.

    `changed` holds the values in which it differs from the trial that it was derived from.
    """

    number: int
    trial: Trial
    reason: str
    launches: bool
    changed: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True)
class TrialFinished:
    """Trial `number` has its answer; `again` when it was unresolved and is tried once more."""

    number: int
    trial: Trial
    answer: Answer
    again: bool = False


@dataclass(frozen=True)
class Note:
    """Something the user should know that changes nothing."""

    text: str


Event: TypeAlias = TrialStarted | TrialFinished | Note | LaunchEvent


class Observer(LaunchObserver, Protocol):
    """Is told how a search goes on, the launches of its servers included."""

    def told(self, event: Event) -> None: ...
