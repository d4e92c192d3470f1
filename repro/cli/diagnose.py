"""The diagnostic re-run: whom it is offered to, the failure it is compared with, what the extra output shows."""

from __future__ import annotations

import gzip
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.cli.wiring import JOURNAL, LOGS
from repro.domain.diagnostics import SETTINGS
from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Outcome, Passed
from repro.domain.stage import Stage
from repro.redact.redactor import Redactor
from repro.session.codec import failure_from_json, failure_to_json
from repro.session.journal import read
from repro.session.workspace import Workspace
from repro.triage import template

# Families that say what was seen and not why.
_WITHOUT_CAUSE = frozenset({Family.ENGINE_DEAD, Family.HANG, Family.TIMEOUT, Family.RENDEZVOUS_TIMEOUT, Family.OTHER})
_SURE = 0.5  # below it triage itself takes its root line for a guess
_MOST_LINES = 5
# Options of a run that a re-run for diagnosis or up the ladder does not take over.
_WITH_VALUE, _ALONE = ("--repeat", "--stop-after", "--target"), ("--json", "--git-bisect")


def worth_diagnosing(failure: Failure) -> bool:
    """Whether the log may not have held the cause."""
    named_by_nccl = failure.family is Family.NCCL  # its own sentence asks for NCCL_DEBUG=INFO
    return failure.family in _WITHOUT_CAUSE or named_by_nccl or failure.confidence < _SURE


def next_flags(failure: Failure) -> tuple[str, ...]:
    """What `repro run` offers to do next about a failure, the most useful first."""
    ladder = ("--rank-ladder",) if failure.stage is Stage.COMM_GROUP else ()
    return (*ladder, *(("--diagnose",) if worth_diagnosing(failure) else ()))


def offer(words: Sequence[str], flag: str, redactor: Redactor) -> str:
    """The user's own `repro run …` with one more flag, as one launch; secrets in it are masked."""
    own = list(words)
    end = own.index("--") if "--" in own else len(own)
    begins, kept = own.index("run") + 1, list[str]()
    options = iter(own[begins:end])
    for word in options:
        if word in _WITH_VALUE:
            next(options, None)
        elif word not in _ALONE and not word.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            kept.append(word)
    return shlex.join(redactor.argv(["repro", *own[:begins], flag, *kept, *own[end:]]))


def settings_document() -> dict[str, str]:
    """What was set, for the run's own record."""
    return {setting.name: setting.value for setting in SETTINGS}


@dataclass(frozen=True)
class Before:
    """The failure that a re-run is compared with, the run or session it was seen in, and its log (.gz) if kept."""

    failure: Failure
    folder: Path
    log: Path | None

    def as_json(self) -> dict[str, Any]:
        return {**failure_to_json(self.failure), "seen_in": str(self.folder)}


def failure_in_session(folder: Path, configuration: str) -> Before | None:
    """The last failure of a configuration (its digest) in the search that is kept in `folder`, if it is one."""
    events, _ = read(folder / JOURNAL) if (folder / JOURNAL).exists() else ([], None)
    for event in reversed(events):
        answer = event.get("answer") if event["event"] == "finished" else None
        if answer and answer.get("failure") and answer["trial"].startswith(configuration):
            return _before(failure_from_json(answer["failure"]), folder, event["log"] and folder / LOGS / event["log"])
    return None


def failure_in_runs(workspace: Workspace, launch: str) -> Before | None:
    """The newest failure of this launch (its digest) in a run without diagnostic settings."""
    folders = sorted((workspace.root / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for folder in folders:
        file = folder / "run.json"
        document = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        if document.get("launch") != launch or document.get("diagnostic"):
            continue
        for run in document.get("each", [document]):
            if run["failure"]:
                return _before(failure_from_json(run["failure"]), folder, run["log"])
    return None


def _before(failure: Failure, folder: Path, log: str | Path | None) -> Before:
    kept = Path(log) if log else None
    return Before(failure, folder, kept if kept is not None and kept.exists() else None)


def comparison(before: Failure | None, outcome: Outcome) -> str:
    """What the re-run says of the failure before, in a sentence."""
    if isinstance(outcome, Passed):
        return "it passed with diagnostic output on: the failure may depend on timing; this is no proof of anything"
    if not isinstance(outcome, Failed):
        return "the re-run could not be tested, so nothing is compared"
    now = outcome.failure
    if before is None:
        return "no earlier run of this command failed in this workspace, so there is nothing to compare with"
    if now.signature == before.signature and now.root_template == before.root_template:
        return "the same error type with the same root line as before"
    if now.signature == before.signature:
        return f"the same error type, and the extra output moves its root line; it was: {_said(before)}"
    return f"another error type than before ({before.signature}: {_said(before)}): the extra output may have its cause"


def new_warnings(before: Path | None, now: Path | None) -> list[str]:
    """Lines of the new log (both are .gz) that warn and whose like the earlier one did not hold, the first five."""
    if now is None:
        return []
    known = {template(line) for line in _lines(before)} if before is not None else set()
    found: dict[str, str] = {}
    for number, line in enumerate(_lines(now), 1):
        shape = template(line)
        if _warns(line) and shape not in known and shape not in found:
            found[shape] = f"line {number}: {line.strip()[:300]}"
        if len(found) == _MOST_LINES:
            break
    return list(found.values())


def diagnosis_text(said: str, warnings: Sequence[str]) -> list[str]:
    """The lines for people."""
    names = " ".join(f"{setting.name}={setting.value}" for setting in SETTINGS)
    shown = ["new in this log:", *(f"  {line}" for line in warnings)] if warnings else []
    return [f"diagnostic re-run, kept apart from proofs: {names}", f"compared: {said}", *shown]


def _said(failure: Failure) -> str:
    return " ".join((failure.root_line or failure.detail).split())[:200]


def _warns(line: str) -> bool:
    return any(word in line for word in ("WARN", "ERROR", "Error", "[W", "[E"))


def _lines(log: Path) -> Iterator[str]:
    with gzip.open(log, "rt", encoding="utf-8", errors="replace") as file:
        yield from file
