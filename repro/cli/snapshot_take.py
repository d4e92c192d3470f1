"""Has a snapshot taken and written, and says what it holds and what to do next."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from repro.bisect import SearchOptions, plan
from repro.cli.options import Source
from repro.cli.production import take
from repro.cli.recipe_choice import choose_here
from repro.cli.snapshot_subject import Subject
from repro.cli.snapshot_text import Checked, price, ten_lines
from repro.domain.command import Command, parse, parse_non_default_args
from repro.domain.command.layout import gpu_count
from repro.domain.fingerprint import Fingerprint
from repro.domain.request import CHAT, Request
from repro.domain.scene import Scene
from repro.errors import InvalidFile, ReproError, UsageError
from repro.machine.clock import Clock
from repro.machine.containers import argv_of
from repro.probe.client import HttpClient
from repro.probe.tokens import CannotCount, HttpTokenizer
from repro.recipe.asked import Asked
from repro.recipe.find import find_recipe
from repro.recipe.minimal import derive
from repro.recipe.request_file import read_request
from repro.redact.redactor import Redactor
from repro.snapshot.capture import Snapshot, capture, default_collectors
from repro.snapshot.collector import Context, Series
from repro.snapshot.configuration import server_addresses
from repro.snapshot.log_source import LogSource, lines_of
from repro.snapshot.write import fingerprint_document, read_fingerprint, snapshot_document, write_snapshot

Check = Callable[[Snapshot], Checked | None]
"""Puts a snapshot to the compatibility chain; None where no recipe applies to it."""

_COMMAND_WITHIN = 16 << 20  # bytes of a log in which its "non-default args" are looked for
_USUAL_LAUNCH_MINUTES = 15.0  # of a model that takes eight GPUs, where the log tells nothing
_LOG_TIME = re.compile(r"(?:INFO|WARNING|ERROR) (\d\d-\d\d \d\d:\d\d:\d\d)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Asking:
    """What of a snapshot the caller decides besides its subject; `inside` None asks a running server's Python only."""

    words: tuple[str, ...] = ()
    file: Path | None = None
    sources: tuple[Path, ...] = ()
    change: str | None = None
    inside: bool | None = None
    hash_weights: bool = False
    request: Mapping[str, Any] | None = None
    request_file: Path | None = None
    concurrency: int | None = None
    series: Series | None = None


def asking_of(options: Mapping[str, Any]) -> Asking:
    """From the command line's options. Raises UsageError and InvalidFile."""
    request: Path | None = options["request"]
    return Asking(
        words=options["words"],
        file=options["file"],
        sources=tuple(options["sources"]),
        change=options["change"],
        inside=options["inside"],
        hash_weights=options["hash_weights"],
        request=read_request(request, CHAT).body if request is not None else None,
        request_file=request,
        concurrency=options["concurrency"],
        series=Series(options["metrics"], seconds_of(options["since"])) if options["metrics"] else None,
    )


@dataclass(frozen=True)
class TakenSnapshot:
    """A snapshot with the folder that it was written to, what it is of, and the lines about it."""

    snapshot: Snapshot
    folder: Path
    files: tuple[Path, ...]
    subject: str
    checked: Checked | None
    next_command: str

    def document(self) -> dict[str, Any]:
        """The shape of `repro snapshot --json`."""
        head = {"folder": str(self.folder), "files": [p.name for p in self.files], "subject": self.subject}
        fingerprint = fingerprint_document(self.snapshot)
        own = {k: v for k, v in snapshot_document(self.snapshot).items() if k not in ("schema", "version")}
        told = {"checked": None if self.checked is None else asdict(self.checked), "next": self.next_command}
        return {**head, **own, **told, "pinned": fingerprint["pinned"], "observed": fingerprint["observed"]}

    def text(self) -> str:
        """Ten lines for the terminal."""
        return "\n".join(ten_lines(self.snapshot, self.folder, self.subject, self.checked, self.next_command))


def take_snapshot(
    folder: Path, subject: Subject, asking: Asking, redactor: Redactor, clock: Clock, check: Check | None = None
) -> TakenSnapshot:
    """Freeze `subject` into `folder`, which is new, and compare with the snapshot before it."""
    command = _command(subject, asking)
    scene = _scene(command, asking)
    context = _context(folder, subject, asking, redactor, command, scene, clock)
    collectors = default_collectors(ask_inside=asking.inside is not False, hash_weights=asking.hash_weights)
    snapshot = capture(context, collectors, clock, _previous(folder))
    files = write_snapshot(snapshot, folder, redactor)
    checked = None if check is None else check(snapshot)
    return TakenSnapshot(
        snapshot=snapshot,
        folder=folder,
        files=files,
        subject=redactor.text(subject.said),
        checked=checked,
        next_command=redactor.text(_next(snapshot, subject, asking, scene, checked)),
    )


def _context(
    folder: Path,
    subject: Subject,
    asking: Asking,
    redactor: Redactor,
    command: Command | None,
    scene: Scene | None,
    clock: Clock,
) -> Context:
    context = Context(
        redactor=redactor,
        folder=folder,
        pid=subject.pid,
        command=command,
        minimal=scene.minimal if scene is not None else None,
        log=subject.log,
        log_hint=subject.log_hint,
        sources=asking.sources,
        hash_weights=asking.hash_weights,
        environment=os.environ,
        change=asking.change,
        changed_at=clock.now(),
        docker=subject.docker,
        container=subject.container,
        container_hint=subject.container_hint,
        inside=asking.inside is True,
        fetch=lambda url, deadline_s: fetch(url, deadline_s, clock),
        series=asking.series,
        request=asking.request,
        concurrency=asking.concurrency,
    )
    return replace(context, count_tokens=lambda body: _count(context, body, clock))


def fetch(url: str, deadline_s: float, clock: Clock) -> str:
    """The body of one GET. LookupError where the answer is not 200."""
    parts = urlsplit(url)
    base = f"{parts.scheme}://{parts.netloc}"
    with HttpClient(base, clock) as client:
        answer = client.get(url[len(base) :] or "/", deadline_s)
    if answer.status != 200:
        raise LookupError(f"{base} answers {answer.status or answer.excerpt()}")
    return answer.text


def _count(context: Context, body: Mapping[str, Any], clock: Clock) -> int:
    why = "no port of the server is known"
    for base in server_addresses(context):
        with HttpClient(base, clock) as client:
            try:
                return HttpTokenizer(client).count(dict(body))
            except CannotCount as error:
                why = str(error)
    raise LookupError(f"the input is text, and no server counts it: {why}")


def _command(subject: Subject, asking: Asking) -> Command | None:
    """The command if any source tells it; a snapshot goes without it rather than not at all."""
    if asking.words or asking.file is not None:
        return take(Source(asking.words, asking.file)).command
    try:
        if subject.container is not None:
            return parse(argv_of(subject.container))
        if subject.pid is not None:
            return take(Source(pid=subject.pid)).command
    except ReproError:
        pass  # a wrapper: its log says what it started
    return None if subject.log is None else command_of_log(subject.log)


def command_of_log(log: LogSource) -> Command | None:
    """The command that the beginning of a log tells of."""
    read = 0
    try:
        for line in lines_of(log.chunks()):
            read += len(line)
            if read > _COMMAND_WITHIN:
                return None
            if b"args: " in line and (command := parse_non_default_args(line.decode("utf-8", "replace"))) is not None:
                return command
    except (OSError, LookupError, ReproError):  # told in the log's own fields
        return None
    return None


def _scene(command: Command | None, asking: Asking) -> Scene | None:
    """What a search would be about; None where that cannot be told from here."""
    if command is None or command.model is None:
        return None
    request = Request.of(CHAT, dict(asking.request)) if asking.request is not None else None
    asked = Asked(request=request, concurrency=asking.concurrency or 1)
    try:
        return derive(command, find_recipe(choose_here(command.model)[0]), asked, name="snapshot").scene
    except (ReproError, ValueError):
        return None


def _previous(folder: Path) -> tuple[str, Fingerprint] | None:
    """The newest snapshot before this one that can be read."""
    for other in sorted((p for p in folder.parent.iterdir() if p.name < folder.name), reverse=True):
        try:
            return other.name, read_fingerprint(other)
        except InvalidFile:
            continue
    return None


def _next(snapshot: Snapshot, subject: Subject, asking: Asking, scene: Scene | None, checked: Checked | None) -> str:
    """The command that goes on from here, with its price."""
    first = "repro check (no launch) and mend what is broken, then " if checked is not None and checked.broken else ""
    return first + _search(snapshot, subject, asking, scene)


def _search(snapshot: Snapshot, subject: Subject, asking: Asking, scene: Scene | None) -> str:
    where = _where(subject, asking)
    if asking.request_file is not None:
        where += f" --request {asking.request_file}"
    if asking.concurrency:
        where += f" --concurrency {asking.concurrency}"
    if scene is None:
        return "repro bisect --plan, with the command of production after `--`; it tells the price and starts nothing"
    gpus = 0 if _on_cpu(snapshot) else gpu_count(scene.production)
    minutes = launch_minutes(snapshot)
    if not scene.variables:
        hours = f"{minutes * gpus / 60:.1f} GPU-hours" if gpus else "no GPU"
        return f"repro run{where}; 1 launch ({minutes:.0f} min, {hours})"
    cost = plan(scene.variables, SearchOptions(scene.precision))
    return f"repro bisect{where}; {price(cost.typical_launches, cost.most_launches, minutes, gpus)}"


def _on_cpu(snapshot: Snapshot) -> bool:
    """Whether this vLLM is built for CPU, by any of the places that tell."""
    versions = [str(snapshot.fact(name).value) for name in ("inside.vllm", "libraries.vllm", "inside.torch")]
    engine = snapshot.fact("configuration.engine").value or {}
    return any(version.endswith("+cpu") for version in versions) or engine.get("device_config") == "cpu"


def _where(subject: Subject, asking: Asking) -> str:
    if asking.words:
        return " -- (the command given here)"
    if asking.file is not None:
        return f" --file {asking.file}"
    if subject.container is not None:
        return f" --container {str(subject.container['Name']).lstrip('/')}"
    if subject.pid is not None:
        return f" --pid {subject.pid}"
    return f" --log {subject.log.name}" if subject.log is not None else ""


def launch_minutes(snapshot: Snapshot) -> float:
    """How long this server took to become ready, by its log's own times; the usual where it does not tell."""
    reached = (snapshot.triage or {}).get("reached") or []
    if not any(each["stage"] == "api_ready" for each in reached):
        return _USUAL_LAUNCH_MINUTES
    times = [match[1] for each in reached if (match := _LOG_TIME.search(str(each["line"])))]
    if len(times) < 2:
        return _USUAL_LAUNCH_MINUTES
    first, last = (datetime.strptime(f"2000-{text}", "%Y-%m-%d %H:%M:%S") for text in (times[0], times[-1]))
    minutes = (last - first).total_seconds() / 60
    return minutes if minutes > 0 else _USUAL_LAUNCH_MINUTES


def seconds_of(text: str) -> float:
    """`90s`, `30m`, `2h`, `1d` as seconds. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--since {text!r} is no length of time", "write it as 90s, 30m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2] or "s"]
