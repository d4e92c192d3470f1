"""Several logs of one launch: the first failing rank.

What a log says about itself comes before its clock: a rank that only lost its peer, or waited for it, never is the
first where another log holds a cause of its own. Among equals the earliest moment wins, by clocks that are put
together where the communication group stood, which is the same moment on every node.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.triage.diagnosis import Diagnosis
from repro.triage.framing import seconds_between

_PEER_LOST = re.compile(
    r"(?i)closed by (?:remote )?peer|reset by peer|broken pipe|got 0 bytes|connection was likely closed"
    r"|ncclRemoteError|remote process exited|peer .*(?:lost|died)"
)
_WAITED = frozenset({Family.RENDEZVOUS_TIMEOUT, Family.TIMEOUT})
_APART = 5.0  # seconds by which clocks may differ before it is worth a word


class Word(IntEnum):
    """What a log's root line says of its own rank, the strongest last."""

    PEER_LOST = 0
    SILENT = 1
    WAITED = 2
    VANISHED = 3
    CAUSE = 4


@dataclass(frozen=True)
class Member:
    """One log of the launch. `ahead`: seconds by which its clock is ahead of the first log's; None where not known."""

    source: str
    diagnosis: Diagnosis
    ahead: float | None = None


@dataclass(frozen=True)
class GroupDiagnosis:
    """All logs judged together. `root` is the member that failed first; None where no log shows a failure."""

    members: tuple[Member, ...]
    root: Member | None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """The root's own answer with `source` and `rank`, and all members under `logs`; a healthy group is `none`."""
        shown = self.root or next((m for m in self.members if m.diagnosis.is_vllm_log), self.members[0])
        notes = [note for note in (shown.diagnosis.note, self.note) if note]
        return {
            **shown.diagnosis.as_json(),
            "source": shown.source,
            "note": " ".join(notes),
            "logs": [
                {**member.diagnosis.as_json(), "source": member.source, "clock_ahead_s": member.ahead}
                for member in self.members
            ],
        }


def first_failing(logs: Sequence[tuple[str, Diagnosis]]) -> GroupDiagnosis:
    """Judges the logs of one launch together; `logs` are (name, its own answer), at least one."""
    formed = next((found.formed_at for _, found in logs if found.formed_at), None)
    members = tuple(Member(name, found, seconds_between(formed, found.formed_at)) for name, found in logs)
    failed = [member for member in members if member.diagnosis.stage is not Stage.NONE]
    if not failed:
        return GroupDiagnosis(members, None)
    strongest = max(_word(member, members) for member in failed)
    equals = [member for member in failed if _word(member, members) is strongest]
    root = _earliest(equals)
    return GroupDiagnosis(members, root, _note(members, strongest))


def _word(member: Member, members: Sequence[Member]) -> Word:
    found = member.diagnosis
    line = found.root_line or ""
    if _PEER_LOST.search(line):
        return Word.PEER_LOST
    if found.family is Family.HANG:
        return Word.VANISHED if _never_came(found, members) else Word.SILENT
    if found.family in _WAITED:
        return Word.WAITED
    if found.family is Family.ENGINE_DEAD:
        return Word.VANISHED
    return Word.CAUSE


def _never_came(found: Diagnosis, members: Sequence[Member]) -> bool:
    """A rank that stands still before the group is what the others wait for."""
    others = [member.diagnosis for member in members if member.diagnosis is not found]
    return found.stage.position < Stage.COMM_GROUP.position and any(
        other.stage.position >= Stage.COMM_GROUP.position for other in others
    )


def _earliest(members: Sequence[Member]) -> Member:
    """By aligned clocks where both have one; the order given, which is the nodes' order, decides the rest."""
    best = members[0]
    for other in members[1:]:
        apart = seconds_between(best.diagnosis.clock, other.diagnosis.clock)
        if apart is None:
            earlier = other.diagnosis.stage.position < best.diagnosis.stage.position
        else:
            earlier = apart - (other.ahead or 0.0) + (best.ahead or 0.0) < 0
        best = other if earlier else best
    return best


def _note(members: Sequence[Member], word: Word) -> str:
    notes = []
    if word in {Word.PEER_LOST, Word.SILENT, Word.WAITED} and len(members) > 1:
        notes.append("No log holds a cause of its own: each rank waits for, or lost, another one.")
    apart = [member for member in members if member.ahead is not None and abs(member.ahead) > _APART]
    notes += [f"The clock of {member.source} is {member.ahead:+.0f} s from that of the first log." for member in apart]
    strangers = [member.source for member in members if not member.diagnosis.is_vllm_log]
    if strangers:
        notes.append(f"Not a log of vLLM: {', '.join(strangers)}.")
    return " ".join(notes)
