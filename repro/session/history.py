"""The git history of a session: every trial a commit whose parent is the configuration it was derived from.

A pure function turns the journal into a `git fast-import` stream, so that the history can be thrown away and made
again: equal journals give equal hashes. The tree holds one line a variable and nothing else, so `git show` of a ladder
trial is the one variable that was changed; what came of the trial stands in the message.

    refs/heads/main            the last stable baseline
    refs/heads/trials/NNN-…    every trial
    refs/tags/stable/N         every baseline, with how often it passed
    refs/tags/target           the first failing production trial
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro.domain.trial import Purpose
from repro.session.journal import Event

_RISING = {Purpose.LADDER.value, Purpose.SET_ASIDE_AGAIN.value}


@dataclass
class _Stream:
    """The fast-import stream under construction."""

    parts: list[bytes] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)

    def write(self, text: str) -> None:
        self.parts.append(text.encode())

    def data(self, text: str) -> None:
        raw = text.encode()
        self.parts.append(b"data %d\n" % len(raw) + raw + b"\n")


@dataclass
class _Baselines:
    """`stable/N` in the order they rose, with (passes, tries) of each configuration."""

    order: list[str] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=dict)


def fast_import_stream(events: Iterable[Event]) -> bytes:
    """The whole history as `git fast-import` wants it. Pure."""
    events = list(events)
    stream, baselines, target = _Stream(), _Baselines(), None
    trials = {t["id"]: t for e in events if e["event"] == "ask" for t in e["trials"]}
    reasons = {t["id"]: e["reason"] for e in events if e["event"] == "ask" for t in e["trials"]}
    finished = [e for e in events if e["event"] == "finished"]
    for number, event in enumerate(finished, 1):
        answer = event["answer"]
        trial = trials[answer["trial"]]
        _commit(stream, number, event, trial, reasons[trial["id"]])
        _count(baselines, trial, answer)
        if target is None and trial["purpose"] == Purpose.PRODUCTION_END.value and answer["outcome"] == "failed":
            target = trial["id"]
    at = int(finished[-1]["at"]) if finished else 0
    for number, trial_id in enumerate(baselines.order):
        passed, of = baselines.counts[_configuration(trial_id)]
        _tag(stream, f"stable/{number}", trial_id, at, f"stable baseline {number}: passed {passed} of {of}\n")
    if target is not None:
        _tag(stream, "target", target, at, "the first failing trial of production\n")
    if baselines.order:
        stream.write(f"reset refs/heads/main\nfrom :{stream.marks[baselines.order[-1]]}\n\n")
    stream.write("done\n")
    return b"".join(stream.parts)


def _commit(stream: _Stream, number: int, event: Event, trial: Mapping[str, Any], reason: str) -> None:
    stream.marks[trial["id"]] = mark = len(stream.marks) + 1
    answer = event["answer"]
    stream.write(f"commit refs/heads/trials/{number:03d}-{answer['outcome']}\nmark :{mark}\n")
    stream.write(f"committer repro <repro@localhost> {int(event['at'])} +0000\n")
    stream.data(_message(number, trial, answer, reason))
    if trial["parent"] in stream.marks:
        stream.write(f"from :{stream.marks[trial['parent']]}\n")
    stream.write("deleteall\nM 100644 inline configuration.txt\n")
    stream.data(configuration_text(trial["values"]))
    stream.write("\n")


def configuration_text(values: Mapping[str, Any]) -> str:
    """One line a variable, sorted by name."""
    return "".join(f"{name} = {_shown(values[name])}\n" for name in sorted(values))


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "on" if value else "off"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _message(number: int, trial: Mapping[str, Any], answer: Mapping[str, Any], reason: str) -> str:
    failure = answer.get("failure")
    end = f"failed {failure['stage']}/{failure['family']}" if failure else answer["outcome"]
    lines = [f"{number:03d} {reason}: {end}", "", f"trial: {trial['id']}", f"purpose: {trial['purpose']}"]
    if trial["parent"]:
        lines.append(f"derived-from: {trial['parent']}")
    if failure and failure["root_line"]:
        lines.append(f"root: {failure['root_line'].strip()}")
    if answer["outcome"] == "unresolved":
        lines.append(f"unresolved: {answer['reason']}")
    lines.append(f"requests: {answer['sent'] - answer['missed']} of {answer['sent']} as expected")
    lines.append(f"cost: {answer['launches']} launches, {answer['seconds']:.1f} s")
    return "\n".join(lines) + "\n"


def _configuration(trial_id: str) -> str:
    return trial_id.rsplit("-", 1)[0]


def _count(baselines: _Baselines, trial: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    passed = answer["outcome"] == "passed"
    if answer["outcome"] != "unresolved":
        counts = baselines.counts.setdefault(_configuration(trial["id"]), [0, 0])
        counts[0] += passed
        counts[1] += 1
    known = {_configuration(t) for t in baselines.order}
    first = trial["purpose"] == Purpose.MINIMAL_END.value and not baselines.order
    if passed and (first or trial["purpose"] in _RISING) and _configuration(trial["id"]) not in known:
        baselines.order.append(trial["id"])


def _tag(stream: _Stream, name: str, trial_id: str, at: int, message: str) -> None:
    stream.write(f"tag {name}\nfrom :{stream.marks[trial_id]}\ntagger repro <repro@localhost> {at} +0000\n")
    stream.data(message)


def write_history(folder: Path, events: Iterable[Event]) -> str | None:
    """Makes the bare repository `folder` say what the journal says. Returns why not, where git is missing or refuses.

    The history is a projection: a search goes on without it, and a later resume makes it.
    """
    try:
        import git  # gitpython looks for the git program when it is imported, and refuses without one
    except ImportError:
        return "git was not found, so no history was written; with git installed, `repro bisect --resume` makes it"
    try:
        repository = git.Repo(folder) if folder.exists() else git.Repo.init(folder, bare=True, initial_branch="main")
        with tempfile.TemporaryFile() as stream:
            stream.write(fast_import_stream(events))
            stream.seek(0)
            repository.git.fast_import("--force", "--quiet", "--done", istream=stream)
        repository.close()
    except (git.GitError, OSError) as error:
        return f"the history {folder} could not be written: {error}"
    return None
