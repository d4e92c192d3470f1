"""The arguments that vLLM writes into its log -> Command: how a wrapper script is resolved after the fact.

vLLM 0.8 and newer write `non-default args: {...}`, older ones `args: Namespace(...)` with every default in it. Both
are Python text, but objects in them ("CompilationConfig(level=3)") are not literals, so each value is read by itself.
"""

from __future__ import annotations

import contextlib
import json
import re

from repro.domain.command.command import Command
from repro.domain.command.flag import Flag, FlagValue, make_flag
from repro.domain.command.flag_names import canonical, read_name
from repro.domain.command.flag_spec import FlagKind
from repro.domain.command.printed_values import Unreadable, read_printed, without_empty

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_NON_DEFAULT = re.compile(r"non-default args:\s*\{")
_NAMESPACE = re.compile(r"args:\s*Namespace\(")
_NO_FLAG = frozenset("model model_tag subparser dispatch_function config cmd func".split())
_MASKS = ("***", "<redacted>")
_API_SERVER = ("python3", "-m", "vllm.entrypoints.openai.api_server")


def parse_non_default_args(line: str) -> Command | None:
    """The command that a log line tells of, None when the line holds no arguments.

    Values that the line does not give back (masked secrets, objects) are left out and named in `Command.unread`. The
    program is `vllm serve`, except for a Namespace without model_tag, which only the API server's module prints.
    """
    text = _ANSI.sub("", line)
    non_default, namespace = _NON_DEFAULT.search(text), _NAMESPACE.search(text)
    if non_default:
        items = _items(text[non_default.end() :], ":")
    elif namespace:
        items = _items(text[namespace.end() :], "=")
    else:
        return None
    if items is None:
        return None
    flags: list[Flag] = []
    unread: list[str] = []
    for key, raw in items.items():
        if key not in _NO_FLAG:
            _read(key, raw, flags, unread)
    model = _model(items)
    serves = "model_tag" in items or not namespace
    if not serves and model is not None:
        flags.insert(0, make_flag("--model", model))
    return Command(
        program=("vllm", "serve") if serves else _API_SERVER,
        model=model,
        flags=tuple(flags),
        model_position=0 if serves and model is not None else None,
        unread=tuple(unread),
    )


def _model(items: dict[str, str]) -> str | None:
    for key in ("model_tag", "model"):
        with contextlib.suppress(Unreadable):
            value = read_printed(items.get(key, "None"))
            if isinstance(value, str):
                return value
    return None


def _read(key: str, raw: str, flags: list[Flag], unread: list[str]) -> None:
    name = canonical(key)
    spec = read_name(name).spec
    try:
        value = read_printed(raw)
    except Unreadable:
        unread.append(name)
        return
    if value in _MASKS:
        unread.append(name)
        return
    if name == "--lora-modules" and isinstance(value, list):
        value = [_adapter(item) for item in value]
    if name == "--compilation-config" and isinstance(value, dict):  # an object that prints itself as a dict
        value = without_empty(value)
    fitting = _fitting(value, spec.kind if spec is not None else None)
    if fitting is not None:
        values = fitting if isinstance(fitting, tuple) and spec and spec.kind is FlagKind.REPEATED else (fitting,)
        flags += [make_flag(name, each) for each in values]


def _adapter(item: object) -> object:
    """A LoRAModulePath in the short form NAME=PATH where that says all."""
    if isinstance(item, dict) and "base_model_name" not in item and not item.get("is_3d_lora_weight"):
        return f"{item.get('name')}={item.get('path')}"
    return item


def _fitting(value: object, kind: FlagKind | None) -> FlagValue:
    """A value as a flag's value; None where the flag need not be written."""
    if value is None:
        return None
    if isinstance(value, bool):
        return value if value or kind is FlagKind.BOOLEAN else None
    if isinstance(value, list) and kind is not FlagKind.JSON:
        return tuple(v if isinstance(v, str) else "None" if v is None else json.dumps(v) for v in value) or None
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False) if value else None
    return str(value)


def _items(text: str, between: str) -> dict[str, str] | None:
    """Split "a=1, b=[2, 3])" (or "'a': 1, …}") at the commas and separators outside brackets and quotes, up to the
    bracket that closes it; None where it is cut off before.
    """
    found: dict[str, str] = {}
    depth, quote, begin, key, skip = 0, "", 0, "", False
    for at, char in enumerate(text):
        if skip or (quote and char not in (quote, "\\")):
            skip = False
        elif quote:
            skip = char == "\\"
            quote = quote if skip else ""
        elif char in "'\"":
            quote = char
        elif char in "([{<":
            depth += 1
        elif depth and char in ")]}>":
            depth -= 1
        elif depth == 0 and char == between and not key:
            key, begin = text[begin:at].strip().strip("'\""), at + 1
        elif depth == 0 and char in ",)}":
            if key:
                found[key] = text[begin:at]
            key, begin = "", at + 1
            if char != ",":
                return found
    return None
