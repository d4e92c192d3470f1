"""What a search ends with: findings with thresholds and proof, what was set aside, and how sure all of it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from repro.domain.failure import Signature
from repro.domain.variable import Kind, Value


class ResultKind(str, Enum):
    """The five ways a search can end."""

    FOUND = "found"
    MINIMAL_FAILS = "minimal_fails"
    NOT_REPRODUCED = "not_reproduced"
    END_NOT_AS_CLAIMED = "end_not_as_claimed"
    INCONCLUSIVE = "inconclusive"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Tally:
    """`count` of `of` trials."""

    count: int
    of: int


@dataclass(frozen=True)
class Bracket:
    """Where a member begins to fail, the other members held at their failing values.

    `passing` is the largest value that did not show the target, `failing` the smallest that did; `reason` says why the
    search between them stopped ("within 5 %", "exact", "no value between"). `exceptions` are values on the wrong side
    of the bracket (a passing one above `failing`, a failing one below `passing`): the fault is then a band. `open`: the
    bracket is wider than asked, because what lies between could not be told.
    """

    passing: Value
    failing: Value
    reason: str
    exceptions: tuple[Value, ...] = ()
    open: bool = False


@dataclass(frozen=True)
class Member:
    """A variable of a minimal failing set with its bracket."""

    variable: str
    kind: Kind
    bracket: Bracket


@dataclass(frozen=True)
class ProofPair:
    """Two trials on fresh servers that differ in exactly `variable`.

    `masked`: the passing side failed with another signature, so the pair shows only that the target went away.
    `holds`: the failing side showed the target again and the passing side passed.
    """

    variable: str
    passing_trial: str
    failing_trial: str
    holds: bool
    masked: bool = False


@dataclass(frozen=True)
class Finding:
    """A minimal failing set. `failed`: the failing side showed the target; `passed`: the passing sides passed.

    `alone` is False where only production as a whole showed the target and taking variables away stopped short.
    """

    signature: Signature
    members: tuple[Member, ...]
    failed: Tally
    passed: Tally
    proof: tuple[ProofPair, ...] = ()
    alone: bool = True

    @property
    def proven(self) -> bool:
        return bool(self.proof) and all(pair.holds for pair in self.proof)


@dataclass(frozen=True)
class SetAside:
    """A variable that failed with another signature than the target: an unproven finding of its own."""

    variable: str
    signature: Signature
    trial: str
    reason: str


@dataclass(frozen=True)
class SearchResult:
    """The end of a search. `stable` holds (tag, trial id); `note` says what the user must know to read it rightly."""

    kind: ResultKind
    target: tuple[Signature, ...] = ()
    findings: tuple[Finding, ...] = ()
    set_aside: tuple[SetAside, ...] = ()
    stable: tuple[tuple[str, str], ...] = ()
    note: str = ""
    still_possible: tuple[str, ...] = field(default=())
