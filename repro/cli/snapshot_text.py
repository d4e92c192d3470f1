"""The ten lines about a snapshot: what failed, what could not be seen and who could, who else is there, what next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from repro.snapshot.capture import Snapshot
from repro.snapshot.write import PAGE

_LONGEST = 200
_NAMED = 3  # facts, differences and neighbours named in a line; the page has all
# A fact is not there because nothing of the kind was named; that is no gap in what could be seen.
_NOT_ASKED = (
    "no ",
    "nothing ",
    "not ",
    "the process runs in no container",
    "a plain folder",
    "--concurrency",
    "weights are",
)
_PRIVILEGE = ("needs", "permission", "takes root", "may you use")


@dataclass(frozen=True)
class Checked:
    """What the compatibility chain says of a snapshot: broken links, first one first, and rules without an answer."""

    recipe: str
    broken: tuple[str, ...]
    unknown: int

    def __str__(self) -> str:
        if self.broken:
            return f"{self.recipe}: broken at {_some(self.broken)}"
        open_ends = f", {self.unknown} rules cannot be answered (repro check)" if self.unknown else ""
        return f"{self.recipe}: no link is known to be broken{open_ends}"


def ten_lines(snapshot: Snapshot, folder: Path, subject: str, checked: Checked | None, next_command: str) -> list[str]:
    """The lines; `checked` None where nobody checked."""
    seconds = snapshot.ended - snapshot.started
    masked = sum(snapshot.masked.values())
    lines = [
        f"{subject}: {folder}",
        *_failure(snapshot),
        f"not seen: {_missing(snapshot)}",
        *([] if checked is None else [f"recipe: {checked}"]),
        f"neighbours on the GPUs: {_neighbours(snapshot)}",
        *_changed(snapshot),
        *(f"warning: {warning}" for warning in snapshot.warnings),
        f"taken {_clock(snapshot.started)} to {_clock(snapshot.ended)} UTC ({seconds:.1f} s); secrets masked: {masked}",
        f"next: {next_command}",
    ]
    return [_line(line) for line in lines]


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%H:%M:%S")


def _failure(snapshot: Snapshot) -> list[str]:
    state = snapshot.fact("container.state")
    ended = ""
    if state.known and not state.value["running"]:
        killed = ", killed for memory" if state.value["oom_killed"] else ""
        ended = f" (the container ended with {state.value['exit_code']}{killed})"
    triage: Any = snapshot.triage
    if triage is None:
        reason = snapshot.fact("triage.diagnosis").reason
        return [f"stage: not known, {reason}{ended}"]
    if triage.get("is_vllm_log") is False:
        return [f"stage: not known, what was read is no log of vLLM{ended}"]
    if triage["stage"] == "none":
        return [f"stage: none, the log tells of no failure{ended}"]
    return [
        f"stage: {triage['stage']}/{triage['family']}{ended}",
        f"root: line {triage['root_line_no']}: {str(triage['root_line'] or '').strip()}",
    ]


def _missing(snapshot: Snapshot) -> str:
    """What is missing for want of a privilege first; the facts of one collector that share a reason are one."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, reason in snapshot.missing.items():
        groups.setdefault((name.split(".")[0], reason), []).append(name)
    told = [(names[0] if len(names) == 1 else group, reason) for (group, reason), names in groups.items()]
    told = [(name, reason) for name, reason in told if not reason.startswith(_NOT_ASKED)]
    told.sort(key=lambda each: not any(word in each[1] for word in _PRIVILEGE))
    shown = [f"{name} ({reason})" if len(reason) < _LONGEST // 2 else name for name, reason in told[:_NAMED]]
    # The number comes first: a long reason may cut the line.
    more = f"{len(told)} in {PAGE}, among them " if len(told) > _NAMED else ""
    return more + "; ".join(shown) if shown else "nothing that was asked for"


def _neighbours(snapshot: Snapshot) -> str:
    fact = snapshot.fact("gpu.processes")
    if not fact.known:
        return f"not known, {fact.reason}"
    own = {snapshot.fact("process.pid").value, *(c["pid"] for c in snapshot.fact("process.children").value or ())}
    container = snapshot.fact("container.id").value
    others = [p for p in fact.value if p["pid"] not in own and not (container and p.get("container") == container)]
    told = _some([_neighbour(each) for each in others]) or "none"
    return f"{told}; {fact.reason}" if fact.reason else told


def _neighbour(user: Mapping[str, Any]) -> str:
    memory = "memory not told" if user["memory"] is None else f"{user['memory'] / 2**30:.1f} GiB"
    place = f" in container {user['container'][:12]}" if user["container"] else ""
    return f"pid {user['pid']} on GPU {user['gpu']} ({memory}){place}: {user['command'] or 'not visible'}"


def _changed(snapshot: Snapshot) -> list[str]:
    if snapshot.previous is None:
        return []
    pinned = [found for found in snapshot.changed if found.pinned]
    # What was merely not visible on one side comes last.
    pinned.sort(key=lambda found: not all(fact is not None and fact.known for fact in (found.before, found.now)))
    names = [found.name for found in pinned]
    return [f"changed since {snapshot.previous}: {_some(names) or 'nothing that should stay'}"]


def price(launches: tuple[int, int], most: int, launch_minutes: float, gpus: int) -> str:
    """What a search costs, as one half sentence."""
    least, typical = launches
    minutes = most * launch_minutes
    hours = f"{minutes * gpus / 60:.1f} GPU-hours" if gpus else "no GPU"
    launches_of_one = str(least) if least == typical else f"{least} to {typical}"
    return (
        f"{launches_of_one} launches if one setting alone is the cause, at most {most:,} ({minutes:.0f} min, {hours})"
    )


def _some(words: Sequence[str]) -> str:
    more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
    return "; ".join(words[:_NAMED]) + more


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
