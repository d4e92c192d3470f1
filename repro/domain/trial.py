"""Trials and answers: the contract between a search and whoever carries it out.

A search is a generator: it yields an `Ask`, is sent a `Reply` and in the end returns its result. It never sees a clock,
a server or a file; so the driver, the resume, the tests and the benchmark can all feed the same one.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from repro.domain.finding import SearchResult
from repro.domain.outcome import Outcome
from repro.domain.stage import Stage
from repro.domain.variable import Configuration


class Fresh(str, Enum):
    """Whether a trial needs a server that has served nothing before. The need is the search's, waiting the driver's."""

    REQUIRED = "required"
    ANY = "any"

    def __str__(self) -> str:
        return self.value


class Purpose(str, Enum):
    """Why a trial is asked for; shown to the user and written into the history."""

    MINIMAL_END = "minimal end"
    PRODUCTION_END = "production end"
    LADDER = "ladder"
    BASELINE_AGAIN = "baseline again"
    SET_ASIDE_AGAIN = "set-aside again"
    REDUCE = "reduce"
    THRESHOLD = "threshold"
    BAND = "band check"
    PROOF = "proof"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Trial:
    """One configuration tried once.

    `parent` is the id of the trial whose configuration this one was derived from (None for the two ends). The request
    set is sent `rounds` times and the trial passes when at most `allowed` requests miss their expectation. With
    `stop_after` the launch ends, passed, as soon as that stage is proven done.
    """

    configuration: Configuration
    repetition: int
    parent: str | None
    purpose: Purpose
    fresh: Fresh = Fresh.ANY
    rounds: int = 1
    allowed: int = 0
    stop_after: Stage | None = None

    @property
    def id(self) -> str:
        return f"{self.configuration.digest}-{self.repetition}"


@dataclass(frozen=True)
class Cost:
    """What a trial took: servers launched for it (retries of unresolved tries included) and wall-clock seconds."""

    launches: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class ServerFacts:
    """The server that a trial met: its id, its launch's digest, requests served before this trial, alive after it."""

    id: str
    launch: str
    served_before: int
    alive: bool


@dataclass(frozen=True)
class Answer:
    """What came of a trial: `missed` of `sent` requests missed their expectation. `server` is None if none came up."""

    trial_id: str
    outcome: Outcome
    missed: int = 0
    sent: int = 0
    cost: Cost = Cost()
    server: ServerFacts | None = None


@dataclass(frozen=True)
class Ask:
    """Mutually independent trials, carried out in any order or side by side; all answers come back in this order."""

    trials: tuple[Trial, ...]
    reason: str


@dataclass(frozen=True)
class Stop:
    """Sent instead of answers: the budget is spent or the user wants out. The search returns what it has."""

    reason: str


Reply: TypeAlias = tuple[Answer, ...] | Stop
Search: TypeAlias = Generator[Ask, Reply, SearchResult]
