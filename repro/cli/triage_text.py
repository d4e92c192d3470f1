"""A diagnosis in words, for somebody who was woken up by it: what failed, the line that says so, what it means, where
to look. The root line is shown with the two lines before and behind it, as they stand in the file.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from repro.domain.stage import Stage
from repro.redact.redactor import Redactor
from repro.triage.advice import EXPECTED, advice_for
from repro.triage.diagnose import DEAD_NOTE

if TYPE_CHECKING:
    from repro.triage import Diagnosis, GroupDiagnosis, Member

_AROUND = 2
_WIDTH = 220
_UNSURE = 0.6
_SHOWN_CONSEQUENCES = 8


def text(diagnosis: Diagnosis, name: str) -> str:
    """One log."""
    if not diagnosis.is_vllm_log:
        return (
            f"{name}: not a vLLM log, nor a message of what starts one.\n"
            "Give the server's own output (docker logs, kubectl logs, the file it was written to)."
        )
    if diagnosis.family is None:
        return "\n".join([f"{name}: no failure{_version(diagnosis)}", *_reached(diagnosis), *_note(diagnosis.note)])
    lines = [f"{name}: {diagnosis.stage}/{diagnosis.family}{_version(diagnosis)}, {_sure(diagnosis)}", ""]
    lines += [*_root(diagnosis, name), "", *_meaning(diagnosis), *_reached(diagnosis), *_expected(diagnosis)]
    return "\n".join(lines)


def group_text(group: GroupDiagnosis) -> str:
    """Several logs of one launch: the first failing rank, then what each log says of itself."""
    lines: list[str] = []
    if group.root is None:
        lines.append(f"{len(group.members)} logs: no failure in any of them")
    else:
        found = group.root.diagnosis
        lines.append(f"{group.root.source}{_rank(found)} failed first: {found.stage}/{found.family}, {_sure(found)}")
        lines += ["", *_root(found, group.root.source), "", *_meaning(found)]
    lines += _note(group.note)
    lines += ["each log by itself:", *(f"  {_member(member, group.root)}" for member in group.members)]
    return "\n".join(lines)


def _member(member: Member, root: Member | None) -> str:
    found = member.diagnosis
    if not found.is_vllm_log:
        return f"{member.source}: not a vLLM log"
    where = f"{member.source}{_rank(found)}"
    if found.family is None:
        return f"{where}: no failure"
    what = f"{found.stage}/{found.family} at line {found.root_line_no}"
    return f"{where}: {what}{' (first)' if member is root else ''}"


def _rank(found: Diagnosis) -> str:
    return "" if found.rank is None else f" (rank {found.rank})"


def _version(found: Diagnosis) -> str:
    return f" (vLLM {found.vllm_version})" if found.vllm_version else ""


def _sure(found: Diagnosis) -> str:
    return f"confidence {found.confidence:.0%}{', unsure' if found.confidence < _UNSURE else ''}"


def _root(found: Diagnosis, name: str) -> list[str]:
    if found.root_line_no is None:
        return ["No line of this log shows the cause."]
    who = found.process or "no process named"
    rank = "" if found.rank is None else f", rank {found.rank}"
    head = f"line {found.root_line_no}, {who}{rank}:"
    around = _context(Path(name), found.root_line_no) or [(found.root_line_no, found.root_line or "")]
    width = len(str(around[-1][0]))
    shown = [
        f"{'>' if number == found.root_line_no else ' '} {number:>{width}}  {_cut(line)}" for number, line in around
    ]
    return [head, *shown]


def _context(log: Path, number: int) -> list[tuple[int, str]]:
    """The lines around line `number`; none where the log was a stream, or is gone by now."""
    first = max(1, number - _AROUND)
    try:
        with log.open("rb") as file:
            raw = list(islice(file, first - 1, number + _AROUND))
    except OSError:
        return []
    lines = [(first + place, line.decode("utf-8", "replace").rstrip("\r\n")) for place, line in enumerate(raw)]
    return lines if any(found == number for found, _ in lines) else []


def _cut(line: str) -> str:
    """One line for a terminal: secrets masked, no control characters, and not wider than is of use."""
    clean = "".join(letter if letter.isprintable() else " " for letter in Redactor().text(line))
    return clean if len(clean) <= _WIDTH else f"{clean[:_WIDTH]} …"


def _meaning(found: Diagnosis) -> list[str]:
    if found.family is None:
        return []
    advice = advice_for(found.family)
    lines = [f"means:    {advice.means}", f"look at:  {advice.look}"]
    if found.consequences:
        shown = ", ".join(map(str, found.consequences[:_SHOWN_CONSEQUENCES]))
        more = f" and {len(found.consequences) - _SHOWN_CONSEQUENCES} more"
        tail = more if len(found.consequences) > _SHOWN_CONSEQUENCES else ""
        lines.append(f"ignore:   {shown}{tail} (lines that only follow from it)")
    return lines if found.note == DEAD_NOTE else lines + _note(found.note)  # the advice says the same


def _note(note: str) -> list[str]:
    return [f"note:     {note}"] if note else []


def _reached(found: Diagnosis) -> list[str]:
    if not found.reached:
        return ["reached:  nothing that this log proves"]
    return ["reached:  " + ", ".join(f"{item.stage} (line {item.line_no})" for item in found.reached)]


def _expected(found: Diagnosis) -> list[str]:
    if found.expected_next is None or found.stage is Stage.SERVING:
        return []
    return [f"expected: {EXPECTED[found.expected_next]} ({found.expected_next})"]
