"""The snapshot on one page of Markdown: what failed, on what, started how, and what could not be seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from repro.domain.fingerprint import Fact

if TYPE_CHECKING:
    from repro.snapshot.capture import Snapshot

_SHOWN = (
    ("Kernel", "host.kernel"),
    ("System", "host.os"),
    ("Memory limit (cgroup)", "host.cgroup_memory_limit"),
    ("NUMA", "host.numa"),
    ("Shared memory", "host.shm_total"),
    ("Disk of the model", "host.model_disk"),
    ("GPU driver", "gpu.driver_version"),
    ("CUDA that the driver supports", "gpu.cuda_version"),
    ("GPUs", "gpu.devices"),
    ("GPU users", "gpu.processes"),
    ("Kernel: Xid", "kernel.xids"),
    ("Kernel: killed for memory", "kernel.oom_kills"),
    ("Docker", "container.docker"),
    ("Container runtime", "container.runtime"),
    ("NVIDIA container toolkit", "container.toolkit"),
    ("Container", "container.name"),
    ("Container state", "container.state"),
    ("Restarted", "container.restarted"),
    ("Image", "container.image"),
    ("Image id", "container.image_id"),
    ("The tag now", "container.tag_now"),
    ("Container limits", "container.limits"),
    ("Mounts", "container.mounts"),
    ("vLLM (as its Python sees it)", "inside.vllm"),
    ("vLLM (as installed)", "libraries.vllm"),
    ("PyTorch", "inside.torch"),
    ("CUDA of PyTorch", "inside.cuda"),
    ("NCCL", "inside.nccl"),
    ("Build", "inside.build"),
    ("Libraries mapped", "process.libraries"),
    ("Ports", "process.ports"),
    ("Processes", "process.children"),
    ("Model", "model_files.path"),
    ("Model revision", "model_files.revision"),
    ("Model index", "model_files.index"),
    ("Set by nobody, in force", "configuration.defaults"),
    ("Cache in force", "configuration.cache"),
    ("Requests served", "serving.requests"),
    ("Longest prompts", "serving.longest_prompts"),
    ("In work when it died", "serving.unfinished"),
    ("Log", "log.path"),
    ("More of the log", "log.elsewhere"),
    ("Source", "source.trees"),
    ("Changed", "command.change"),
)
_LONGEST = 160
_CHANGES = 20
_CONTEXT_LINES = 24


def page(snapshot: Snapshot) -> str:
    """The text of `SNAPSHOT.md`."""
    seconds = snapshot.ended - snapshot.started
    parts = [
        f"# Snapshot {snapshot.id}",
        f"Taken from {_moment(snapshot.started)} to {_moment(snapshot.ended)}, within {seconds:.1f} s. "
        "Every fact is labelled measured, declared or unavailable.",
        *(f"**Warning:** {warning}." for warning in snapshot.warnings),
        "## What failed",
        *_failure(snapshot.triage, snapshot.fact("triage.context")),
        "## Command",
        _command(snapshot),
        *_changes(snapshot),
        "## Scene",
        "\n".join(["| Fact | Value | Evidence |", "|---|---|---|", *_rows(snapshot)]),
        "## Not seen",
        "\n".join(_missing(snapshot)) or "Nothing: every fact could be read.",
        "## Masked",
        ", ".join(f"{count} x {rule}" for rule, count in sorted(snapshot.masked.items())) or "No secret was met.",
    ]
    return "\n\n".join(parts) + "\n"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _changes(snapshot: Snapshot) -> list[str]:
    """What differs from the snapshot before, pinned facts first."""
    if snapshot.previous is None:
        return []
    pinned = [found for found in snapshot.changed if found.pinned]
    lines = [f"- `{found.name}`: {_cell(_known(found.before))} -> {_cell(_known(found.now))}" for found in pinned]
    more = [f"- and {len(lines) - _CHANGES} more"] if len(lines) > _CHANGES else []
    text = "\n".join(lines[:_CHANGES] + more)
    return [f"## Changed since {snapshot.previous}", text or "Nothing that should stay: memory and load alone moved."]


def _known(fact: Fact | None) -> str:
    return _text(fact.value) if fact is not None and fact.known else "not known"


def _failure(triage: Any, context: Fact) -> list[str]:
    if not triage:
        return ["No log was read, so no failing stage is named."]
    if triage.get("stage") in (None, "none"):
        return ["The log shows no failure."]
    lines = [f"First failing stage **{triage['stage']}**, family **{triage.get('family')}**."]
    if triage.get("root_line"):
        lines.append(_block(_context(context) or f"{triage.get('root_line_no')}: {triage['root_line']}"))
    return lines


def _context(context: Fact) -> str:
    """The root with its neighbours and consequences, a gap where lines are left out."""
    shown: list[str] = []
    last = None
    for each in (context.value or [])[:_CONTEXT_LINES]:
        shown += ["..."] if last is not None and each["line_no"] != last + 1 else []
        shown.append(f"{each['line_no']}: {each['text'][:_LONGEST]}")
        last = each["line_no"]
    return "\n".join(shown)


def _command(snapshot: Snapshot) -> str:
    facts = snapshot.facts
    absent = Fact.unavailable("not collected")
    shell = facts.get("command", {}).get("shell", absent)
    argv = next((f for f in (snapshot.fact("process.argv"), snapshot.fact("container.argv")) if f.known), absent)
    difference = facts.get("command", {}).get("difference", absent)
    if shell.known:
        text = _block(str(shell.value))
    elif argv.known:
        text = _block(" ".join(argv.value))
    else:
        return f"Unknown: {shell.reason}; {argv.reason}."
    if difference.known and difference.value:
        text += "\n\nOther than minimal:\n\n" + "\n".join(_difference(d) for d in difference.value)
    return text


def _difference(found: Mapping[str, Any]) -> str:
    return f"- `{found['name']}`: {_cell(_text(found['minimal']))} -> {_cell(_text(found['command']))}"


def _rows(snapshot: Snapshot) -> Iterable[str]:
    for title, name in _SHOWN:
        group, short = name.split(".")
        fact = snapshot.facts.get(group, {}).get(short)
        if fact is not None and fact.known and fact.value not in (None, [], {}):
            yield f"| {title} | {_cell(_short(name, fact.value))} | {fact.label} |"


def _short(name: str, value: Any) -> str:
    """What fits into a cell of facts that are long lists."""
    match name:
        case "process.libraries":
            return ", ".join(PurePath(each["path"]).name + (" (compat)" if each["compat"] else "") for each in value)
        case "container.mounts":
            return ", ".join(f"{mount['source']} at {mount['destination']}" for mount in value)
        case "kernel.xids" | "kernel.oom_kills":
            last = value[-1]
            told = last.get("text") or f"Xid {last['number']} of {last['device']}"
            return f"{len(value)} since the machine started, the last at {_moment(last['time'])}: {told}"
        case "source.trees":
            return ", ".join(f"{each['path']} at {each.get('commit') or each.get('reason')}" for each in value)
        case _:
            return _text(value)


def _missing(snapshot: Snapshot) -> Iterable[str]:
    """One line for each reason, with the facts that it costs."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for name, reason in snapshot.missing.items():
        by_reason.setdefault((name.split(".")[0], reason), []).append(name)
    for (group, reason), names in by_reason.items():
        shown = f"{group} ({len(names)} facts)" if len(names) > 3 else ", ".join(names)
        yield f"- {shown}: {_cell(reason)}"


def _text(value: Any) -> str:
    match value:
        case list():
            return "; ".join(_text(item) for item in value) or "none"
        case dict():
            return ", ".join(f"{key}: {_text(item)}" for key, item in value.items() if item not in (None, [], {}))
        case None:
            return "absent"
        case _:
            return str(value)


def _cell(text: str) -> str:
    """One line, no table or markup broken by what a machine happened to print."""
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _block(text: str) -> str:
    """A fenced block whose fence is longer than any in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"
