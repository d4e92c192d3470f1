"""Frozen scenes by name: a snapshot's id, its folder or its fingerprint.json, one node's part of it, or `now`.

A snapshot is read back from what it wrote; a folder that holds no more than fingerprint.json is enough.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.cli.options import Source
from repro.cli.production import take
from repro.domain.command import Command
from repro.domain.compatibility import Node
from repro.domain.fingerprint import Fact, Fingerprint
from repro.errors import InvalidFile, ReproError, UsageError
from repro.machine.processes import find_vllm
from repro.redact.redactor import Redactor
from repro.session.workspace import Workspace, find
from repro.snapshot.capture import capture
from repro.snapshot.collector import Context

NOW = "now"
_FINGERPRINT, _SNAPSHOT = "fingerprint.json", "snapshot.json"
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
        return FrozenScene(name, read_facts(path / _FINGERPRINT))
    root = find(Path.cwd())
    snapshot, _, part = name.partition("/")
    if root is None:
        raise UsageError(f"{name} is no file, and there is no workspace here", _MEND)
    folder = Workspace(root).existing("snapshots", snapshot)
    places = [folder / "nodes" / part, folder / part] if part else [folder]
    found = next((place for place in places if (place / _FINGERPRINT).is_file()), None)
    if found is None:
        known = sorted(p.parent.name for p in folder.glob(f"nodes/*/{_FINGERPRINT}"))
        raise UsageError(f"{name} has no {_FINGERPRINT}", f"parts there: {', '.join(known) or 'none'}; {_MEND}")
    return FrozenScene(name, read_facts(found / _FINGERPRINT))


def newest_scene() -> FrozenScene:
    """The newest snapshot of the workspace. Raises UsageError where there is none."""
    root = find(Path.cwd())
    folders = sorted(p.parent for p in (root / "snapshots").glob(f"*/{_FINGERPRINT}")) if root else []
    if not folders:
        raise UsageError("there is no snapshot yet", "take one with `repro snapshot`, or give the command after `--`")
    return FrozenScene(folders[-1].name, read_facts(folders[-1] / _FINGERPRINT))


def read_facts(path: Path) -> dict[str, Fact]:
    """All facts of a fingerprint.json and of the snapshot.json beside it. Raises InvalidFile."""
    document = _read(path, "repro/fingerprint")
    facts = {}
    try:
        fingerprint = Fingerprint.from_json(document)
        facts = {**fingerprint.observed, **fingerprint.pinned}
        beside = path.with_name(_SNAPSHOT)
        if beside.is_file():
            for group, members in _read(beside, "repro/snapshot")["facts"].items():
                facts |= {f"{group}.{name}": Fact.from_json(fact) for name, fact in members.items()}
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
    return document


def scene_of_command(words: tuple[str, ...], redactor: Redactor) -> FrozenScene:
    """This host now, with the command that would be started on it."""
    taken = take(Source(words=words))
    return FrozenScene(NOW, _facts_now(Context(redactor=redactor, command=taken.command, environment=os.environ)))


def scene_now(before: FrozenScene, redactor: Redactor) -> FrozenScene:
    """This host now, with the server of an earlier scene: its process where it lives, else the only one that runs.

    Where none runs, the earlier scene's command stands for it, so that files and libraries are still compared.
    """
    running = [facts.pid for facts in find_vllm()]
    pid = before.facts.get("process.pid")
    alive = pid.value if pid is not None and pid.value in running else None
    if alive is None and len(running) == 1:
        alive = running[0]
    context = Context(redactor=redactor, environment=os.environ)
    if alive is not None:
        return FrozenScene(NOW, _facts_now(Context(redactor=redactor, pid=alive, command=_command(alive))))
    node = before.node
    if node.command is not None:
        known = dict(node.environment.value) if node.environment.known else {}
        context = Context(redactor=redactor, command=node.command, environment={**os.environ, **known})
    return FrozenScene(NOW, _facts_now(context))


def _command(pid: int) -> Command | None:
    try:
        return take(Source(pid=pid)).command
    except ReproError:
        return None


def _facts_now(context: Context) -> dict[str, Fact]:
    found = capture(context).facts
    return {f"{group}.{name}": fact for group, members in found.items() for name, fact in members.items()}
