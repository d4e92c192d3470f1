"""The snapshot on one page of Markdown: what failed, on what, started how, and what could not be seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from repro.domain.fingerprint import Fact

if TYPE_CHECKING:
    from repro.snapshot.capture import Snapshot

_SHOWN = (
    ("Kernel", "host.kernel"),
    ("System", "host.os"),
    ("Memory limit (cgroup)", "host.cgroup_memory_limit"),
    ("GPU driver", "gpu.driver_version"),
    ("GPUs", "gpu.devices"),
    ("GPU users", "gpu.processes"),
    ("vLLM", "libraries.vllm"),
    ("PyTorch", "libraries.torch"),
    ("Image", "command.image_id"),
    ("Model", "model_files.path"),
    ("Model revision", "model_files.revision"),
    ("Log", "log.path"),
    ("Source", "source.trees"),
    ("Changed", "command.change"),
)
_LONGEST = 160


def page(snapshot: Snapshot) -> str:
    """The text of `SNAPSHOT.md`."""
    seconds = snapshot.ended - snapshot.started
    parts = [
        f"# Snapshot {snapshot.id}",
        f"Taken within {seconds:.1f} s. Every fact is labelled measured, declared or unavailable.",
        "## What failed",
        *_failure(snapshot.triage),
        "## Command",
        _command(snapshot),
        "## Scene",
        "\n".join(["| Fact | Value | Evidence |", "|---|---|---|", *_rows(snapshot)]),
        "## Not seen",
        "\n".join(_missing(snapshot)) or "Nothing: every fact could be read.",
        "## Masked",
        ", ".join(f"{count} x {rule}" for rule, count in sorted(snapshot.masked.items())) or "No secret was met.",
    ]
    return "\n\n".join(parts) + "\n"


def _failure(triage: Any) -> list[str]:
    if not triage:
        return ["No log was read, so no failing stage is named."]
    if triage.get("stage") in (None, "none"):
        return ["The log shows no failure."]
    lines = [f"First failing stage **{triage['stage']}**, family **{triage.get('family')}**."]
    if triage.get("root_line"):
        lines.append(_block(f"{triage.get('root_line_no')}: {triage['root_line']}"))
    return lines


def _command(snapshot: Snapshot) -> str:
    facts = snapshot.facts
    absent = Fact.unavailable("not collected")
    shell = facts.get("command", {}).get("shell", absent)
    argv = facts.get("process", {}).get("argv", absent)
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
        if fact is not None and fact.known:
            yield f"| {title} | {_cell(_text(fact.value))} | {fact.label} |"


def _missing(snapshot: Snapshot) -> Iterable[str]:
    """One line for each reason, with the facts that it costs."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in snapshot.missing.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        group = names[0].split(".")[0]
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
