"""Puts the bundle together in a folder, looks through it for secrets, and packs it: `<scene>-<session>.tar.gz`."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repro import __version__
from repro.domain.launch import Launch
from repro.domain.scene import Scene
from repro.handoff.archive import SUMS, names_in, refuse_secrets, sha256, write_archive, write_sums
from repro.handoff.case import Case, Side, read_case
from repro.handoff.log_excerpt import Excerpt, copy_log, excerpt
from repro.handoff.report import Enclosed, report
from repro.handoff.script import command_text, curl_sh, reproduce_sh, side_text
from repro.redact.redactor import Redactor
from repro.session.journal import Event

JOURNAL_COPY, MANIFEST, LOGS = "session.jsonl", "manifest.json", "logs"


@dataclass(frozen=True)
class Bundle:
    """A written bundle. `manifest` is what its manifest.json holds."""

    path: Path
    manifest: Mapping[str, Any]
    sha256: str
    size: int


def write_bundle(
    folder: Path, events: Sequence[Event], scene: Scene, redactor: Redactor, target: Path | None = None
) -> Bundle:
    """Writes the bundle of the session in `folder`; `target` None is `<scene>-<session>.tar.gz` in this folder.

    Raises SecretFound, having written nothing; InvalidFile where the target is there or cannot be written.
    """
    case = read_case(folder, events, scene)
    target = target or Path(f"{case.name}.tar.gz")
    with tempfile.TemporaryDirectory(prefix="repro-bundle-") as name:
        staged = Path(name)
        manifest = _stage(case, staged, redactor)
        refuse_secrets(staged, redactor)
        write_archive(staged, case.name, target, int(case.begun["at"]))
    return Bundle(target, manifest, sha256(target), target.stat().st_size)


def _stage(case: Case, staged: Path, redactor: Redactor) -> Mapping[str, Any]:
    requests = _Requests(staged, redactor)
    for side in case.sides:
        requests.write(side)
    enclosed = _enclosed(case, staged, requests)
    first = case.pairs[0].failing
    texts = {
        "REPORT.md": report(case, enclosed, redactor),
        "reproduce.sh": reproduce_sh(case, requests.names, redactor),
        "fingerprint.json": _json(case.begun["fingerprint"]),
        "scenario.toml": case.begun["scenario"],
        JOURNAL_COPY: "".join(_line(event) for event in case.events),
        **dict(_commands(case, redactor)),
    }
    if first.id in requests.names:
        texts["curl.sh"] = curl_sh(first, requests.names[first.id])
    for name, text in texts.items():
        (staged / name).write_text(text, encoding="utf-8")
    manifest = {
        "schema": "repro/bundle",
        "version": 1,
        "repro": __version__,
        "session": case.session,
        "scene": case.scene.name,
        "outcome": case.document["outcome"],
        "rerun": None,
        "files": [
            {"path": name, "sha256": sha256(staged / name), "bytes": (staged / name).stat().st_size}
            for name in names_in(staged)
        ],
    }
    (staged / MANIFEST).write_text(_json(manifest), encoding="utf-8")
    write_sums(staged)
    return manifest


def _commands(case: Case, redactor: Redactor) -> Iterator[tuple[str, str]]:
    """(file, one shell line) of both ends and of every side; further pairs carry their variable in the name."""
    scene = case.scene
    for word, configuration in (
        ("minimal", scene.minimal_configuration),
        ("production", scene.production_configuration),
    ):
        yield f"{word}-command.txt", redactor.text(_launch_text(scene.launch(configuration)))
    for number, pair in enumerate(case.pairs, 1):
        suffix = "" if number == 1 else f"-{number}"
        yield f"failing-command{suffix}.txt", side_text(pair.failing, redactor)
        if pair.passing is not None:
            yield f"passing-command{suffix}.txt", side_text(pair.passing, redactor)


def _launch_text(launch: Launch) -> str:
    names = sorted({*launch.environment_from, *launch.command.environment_from})
    return command_text(launch.command, launch.environment, names)


@dataclass
class _Requests:
    """Writes the bodies of the sides, each once: sides that send the same share its file."""

    staged: Path
    redactor: Redactor
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    masked: set[str] = field(default_factory=set)
    _files: dict[str, str] = field(default_factory=dict)

    def write(self, side: Side) -> None:
        if side.requests is None or not side.requests.bodies:
            return
        main = not self._files
        names = []
        for number, body in enumerate(side.requests.bodies, 1):
            safe = self.redactor.text(body)
            if safe != body:
                self.masked.add(side.id)
            if safe not in self._files:
                alone = len(side.requests.bodies) == 1
                stem = "request" if main else f"request-{side.id}"
                self._files[safe] = f"{stem}.json" if alone else f"{stem}-{number}.json"
                (self.staged / self._files[safe]).write_text(safe, encoding="utf-8")
            names.append(self._files[safe])
        self.names[side.id] = tuple(names)


def _enclosed(case: Case, staged: Path, requests: _Requests) -> Enclosed:
    """Copies logs and contexts, and tells what there is now."""
    excerpts: dict[str, Excerpt] = {}
    contexts: dict[str, str] = {}
    cut: dict[str, int] = {}
    (staged / LOGS).mkdir()
    aside = [t for s in case.document.get("set_aside", ()) if (t := case.trial(s["trial"])) is not None]
    for trial in (*(side.trial for side in case.sides), *aside):
        log = case.folder / LOGS / Path(str(trial["log"])).name
        if trial["log"] is None or not log.is_file():
            continue
        if trial["outcome"] == "failed":
            lines = excerpts[trial["id"]] = excerpt(log, trial["root_line_no"])
            contexts[trial["id"]] = f"{LOGS}/{trial['id']}.context.txt"
            (staged / contexts[trial["id"]]).write_text(lines.text(), encoding="utf-8")
        name = f"{LOGS}/{log.name}"
        if trial not in aside and not (staged / name).exists() and (left := copy_log(log, staged / name)):
            cut[name] = left
    rebuild = {side.id: _rebuild(side) for side in case.sides if side.id not in requests.names}
    return Enclosed(requests.names, frozenset(requests.masked), excerpts, contexts, cut, rebuild)


def _rebuild(side: Side) -> str:
    """The `repro run` that builds the request of this side again, with the tokenizer of the server it starts."""
    shape = side.shape
    words = ["repro", "run"]
    if shape.input_tokens is not None:
        words += ["--input-tokens", str(shape.input_tokens)]
    if shape.max_tokens is not None:
        words += ["--max-tokens", str(shape.max_tokens)]
    if shape.concurrency > 1:
        words += ["--concurrency", str(shape.concurrency)]
    words += ["--stream"] if shape.stream else []
    # The file is for the reader to write: production's own request stands in scenario.toml.
    words += ["--request", "request-body.json"] if shape.base is not None else []
    command = side.launch.command
    pairs = {**dict(side.launch.environment), **dict(command.environment)}
    return shlex.join([*words, "--", *(f"{n}={v}" for n, v in pairs.items()), *command.argv()])


def _line(event: Event) -> str:
    # As the journal writes its lines.
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


__all__ = ["MANIFEST", "SUMS", "Bundle", "write_bundle"]
