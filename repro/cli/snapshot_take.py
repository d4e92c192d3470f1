"""Finds what a snapshot is of, has it taken and written, and says in ten lines what it holds."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.cli.options import Source
from repro.cli.production import take
from repro.domain.command import Command
from repro.errors import ReproError, UsageError
from repro.machine.clock import Clock
from repro.machine.processes import find_vllm
from repro.recipe.asked import Asked
from repro.recipe.find import choose, find_recipe
from repro.recipe.minimal import derive
from repro.redact.redactor import Redactor
from repro.snapshot.capture import Snapshot, capture
from repro.snapshot.collector import Context
from repro.snapshot.write import fingerprint_document, new_folder, snapshot_document, write_snapshot

# How many missing facts the terminal names; the page has them all.
_MISSING_SHOWN = 5


@dataclass(frozen=True)
class TakenSnapshot:
    """A snapshot with the folder that it was written to and what it is of."""

    snapshot: Snapshot
    folder: Path
    files: tuple[Path, ...]
    subject: str

    def document(self) -> dict[str, Any]:
        """The shape of `repro snapshot --json`."""
        head = {"folder": str(self.folder), "files": [p.name for p in self.files], "subject": self.subject}
        fingerprint = fingerprint_document(self.snapshot)
        own = {k: v for k, v in snapshot_document(self.snapshot).items() if k not in ("schema", "version")}
        return {**head, **own, "pinned": fingerprint["pinned"], "observed": fingerprint["observed"]}

    def text(self) -> str:
        """Ten lines for the terminal."""
        triage = self.snapshot.triage
        lines = [f"{self.folder}: {self.subject}"]
        if triage and triage.get("stage") not in (None, "none"):
            lines.append(f"first failing stage: {triage['stage']}/{triage['family']}")
            lines.append(f"root: line {triage['root_line_no']}: {str(triage['root_line']).strip()}")
        elif triage:
            lines.append("the log tells of no failure")
        lines += [f"unavailable: {names}: {reason}" for names, reason in self._missing()[:_MISSING_SHOWN]]
        if len(self._missing()) > _MISSING_SHOWN:
            lines.append(f"unavailable: more, in {self.folder}/SNAPSHOT.md")
        masked = sum(self.snapshot.masked.values())
        lines.append(f"secrets masked: {masked}; taken in {self.snapshot.ended - self.snapshot.started:.1f} s")
        lines.append("next: repro bisect --plan, with the command of production after `--`")
        return "\n".join(lines)

    def _missing(self) -> list[tuple[str, str]]:
        """(facts, reason): the facts of one collector that are missing for one reason are one line."""
        groups: dict[tuple[str, str], list[str]] = {}
        for name, reason in self.snapshot.missing.items():
            groups.setdefault((name.split(".")[0], reason), []).append(name)
        return [
            (names[0] if len(names) == 1 else f"{group} ({len(names)} facts)", reason)
            for (group, reason), names in groups.items()
        ]


def take_snapshot(
    parent: Path,
    clock: Clock,
    redactor: Redactor,
    *,
    words: tuple[str, ...],
    file: Path | None,
    pid: int | None,
    container: str | None,
    log: Path | None,
    sources: Sequence[Path],
    change: str | None,
) -> TakenSnapshot:
    """Raises UsageError when several servers run and none is named, and InvalidFile for a log that cannot be read."""
    if not words and file is None and pid is None and container is None and log is None:
        pid = _only_server()
    command = _command(Source(words, file, pid, container, None), log)
    folder = new_folder(parent, clock.now())
    context = Context(
        redactor=redactor,
        folder=folder,
        pid=pid,
        command=command,
        minimal=_minimal(command),
        log=log,
        sources=tuple(sources),
        environment=os.environ,
        change=change,
    )
    snapshot = capture(context, clock=clock)
    files = write_snapshot(snapshot, folder, redactor)
    return TakenSnapshot(snapshot, folder, files, _subject(pid, container, log, command))


def _only_server() -> int | None:
    """The one vLLM server that runs here, None if there is none: the host alone is then frozen."""
    found = find_vllm()
    tops = [facts for facts in found if facts.parent not in {f.pid for f in found}]
    if len(tops) > 1:
        listed = "; ".join(f"pid {f.pid}: {shlex.join(f.argv or ())[:100]}" for f in tops)
        raise UsageError(f"{len(tops)} vLLM servers run here: {listed}", "name one of them by --pid")
    return tops[0].pid if tops else None


def _command(source: Source, log: Path | None) -> Command | None:
    """The command if any source tells it; a snapshot goes without it rather than not at all."""
    tries = [source] if source != Source() else []
    if log is not None:
        tries.append(Source(log=log))
    for attempt in tries:
        try:
            return take(attempt).command
        except ReproError:
            if attempt.words or attempt.file or attempt.container:
                raise
    return None


def _minimal(command: Command | None) -> Command | None:
    if command is None or command.model is None:
        return None
    return derive(command, find_recipe(choose(command.model)), Asked(), name="snapshot").scene.minimal


def _subject(pid: int | None, container: str | None, log: Path | None, command: Command | None) -> str:
    parts = [f"process {pid}" if pid is not None else "", f"container {container}" if container else ""]
    parts += [f"log {log}" if log else "", "a command" if command is not None and pid is None else ""]
    return ", ".join(filter(None, parts)) or "this host (no vLLM server runs here)"
