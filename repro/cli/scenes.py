"""Frozen scenes by name: a snapshot's id, its folder or its fingerprint.json, one node's part of it, or `now`.

A snapshot is read back from what it wrote; a folder that holds no more than fingerprint.json is enough.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repro.cli.options import Source
from repro.cli.production import take
from repro.cli.snapshot_subject import Subject, find_subject, refuse
from repro.cli.snapshot_take import fetch
from repro.domain.compatibility import Node
from repro.domain.fingerprint import Fact, Fingerprint
from repro.errors import InvalidFile, UsageError
from repro.machine.clock import Clock, SystemClock
from repro.machine.docker_api import connect
from repro.machine.processes import describe
from repro.redact.redactor import Redactor
from repro.session.workspace import Workspace, find
from repro.snapshot.capture import capture
from repro.snapshot.collector import Context
from repro.snapshot.write import FACTS, FINGERPRINT, SCHEMA_VERSION

NOW = "now"
_IDENTITY = ("container.id", "process.pid", "process.started")
_MEND = "name a snapshot's id, its folder or its fingerprint.json; `repro snapshot` takes one"


@dataclass(frozen=True)
class FrozenScene:
    """The facts of one moment by dotted name. `name` is what the user called it."""

    name: str
    facts: Mapping[str, Fact]

    @property
    def node(self) -> Node:
        """The scene as a node, called by its host's name where that is known."""
        host = self.facts.get("host.hostname")
        return Node(str(host.value) if host is not None and host.known else self.name, self.facts)


def open_scene(name: str) -> FrozenScene:
    """The scene of an id in the workspace (`ID/NODE` for one node's part), or of a path. Raises UsageError."""
    path = Path(name)
    if path.is_file():
        return FrozenScene(name, read_facts(path))
    if path.is_dir():
        return FrozenScene(name, read_facts(path / FINGERPRINT))
    root = find(Path.cwd())
    snapshot, _, part = name.partition("/")
    if root is None:
        raise UsageError(f"{name} is no file, and there is no workspace here", _MEND)
    folder = Workspace(root).existing("snapshots", snapshot)
    places = [folder / "nodes" / part, folder / part] if part else [folder]
    found = next((place for place in places if (place / FINGERPRINT).is_file()), None)
    if found is None:
        known = sorted(p.parent.name for p in folder.glob(f"nodes/*/{FINGERPRINT}"))
        raise UsageError(f"{name} has no {FINGERPRINT}", f"parts there: {', '.join(known) or 'none'}; {_MEND}")
    return FrozenScene(name, read_facts(found / FINGERPRINT))


def newest_scene() -> FrozenScene:
    """The newest snapshot of the workspace. Raises UsageError where there is none."""
    root = find(Path.cwd())
    folders = sorted(p.parent for p in (root / "snapshots").glob(f"*/{FINGERPRINT}")) if root else []
    if not folders:
        raise UsageError("there is no snapshot yet", "take one with `repro snapshot`, or give the command after `--`")
    return FrozenScene(folders[-1].name, read_facts(folders[-1] / FINGERPRINT))


def read_facts(path: Path) -> dict[str, Fact]:
    """All facts of a fingerprint.json and of the snapshot.json beside it. Raises InvalidFile."""
    document = _read(path, "repro/fingerprint")
    facts = {}
    try:
        fingerprint = Fingerprint.from_json(document)
        facts = {**fingerprint.observed, **fingerprint.pinned}
        beside = path.with_name(FACTS)
        if beside.is_file():
            shown = _read(beside, "repro/snapshot")["facts"]
            groups = {g: {name: Fact.from_json(fact) for name, fact in members.items()} for g, members in shown.items()}
            facts |= facts_by_name(groups)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidFile(f"{path}: is no fingerprint as repro writes it ({error!r})", _MEND) from error
    return facts


def _read(path: Path, schema: str) -> Any:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror or error}", _MEND) from error
    except ValueError as error:
        raise InvalidFile(f"{path}: no JSON: {error}", _MEND) from error
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise InvalidFile(f"{path}: its schema is not {schema}", _MEND)
    if document.get("version") != SCHEMA_VERSION:
        raise InvalidFile(f"{path}: version {document.get('version')!r} is not {SCHEMA_VERSION}", "use a newer repro")
    return document


def scene_of_command(words: tuple[str, ...], redactor: Redactor) -> FrozenScene:
    """This host now, with the command that would be started on it."""
    taken = take(Source(words=words))
    return FrozenScene(NOW, _facts_now(Context(redactor=redactor, command=taken.command, environment=os.environ)))


def scene_now(before: FrozenScene, redactor: Redactor) -> FrozenScene:
    """This host now, with the server of an earlier scene: its container or process where it is still there, else the
    one vLLM that runs here. Where none does, the earlier scene's command stands for it, so that files and libraries are
    still compared. Raises UsageError where several run.
    """
    clock = SystemClock()
    subject = _same_server(before, clock) or _only_server(clock)
    context = Context(
        redactor=redactor,
        pid=subject.pid,
        log=subject.log,
        environment=os.environ,
        docker=subject.docker,
        container=subject.container,
        container_hint=subject.container_hint,
        fetch=lambda url, deadline_s: fetch(url, deadline_s, clock),
    )
    if subject.pid is None and subject.container is None and before.node.command is not None:
        known = before.node.environment
        environment = {**os.environ, **(known.value if known.known else {})}
        context = replace(context, command=before.node.command, environment=environment)
    return FrozenScene(f"{NOW}: {subject.said}", _facts_now(context))


def _only_server(clock: Clock) -> Subject:
    try:
        return find_subject(None, None, None, search=True, connect=connect, choose=refuse, clock=clock)
    except UsageError as error:
        mend = "the server of A is gone; freeze the one that you mean (repro snapshot --pid PID), and compare with that"
        raise UsageError(error.message, mend) from error


def _same_server(before: FrozenScene, clock: Clock) -> Subject | None:
    """The container or the process that the earlier scene was taken of, None where it is not there any more."""
    container, pid, started = (before.node.fact(name) for name in _IDENTITY)
    if container.known:
        with suppress(UsageError):
            return find_subject(None, container.value, None, search=False, connect=connect, choose=refuse, clock=clock)
    if pid.known and started.known and describe(pid.value).started == started.value:
        return find_subject(pid.value, None, None, search=False, connect=connect, choose=refuse, clock=clock)
    return None


def facts_by_name(groups: Mapping[str, Mapping[str, Fact]]) -> dict[str, Fact]:
    """A snapshot's facts by dotted name."""
    return {f"{group}.{name}": fact for group, members in groups.items() for name, fact in members.items()}


def _facts_now(context: Context) -> dict[str, Fact]:
    return facts_by_name(capture(context).facts)
