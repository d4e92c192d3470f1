"""Reading and setting values over a row of flags, with vLLM's own rules for what wins.

The last occurrence wins, except for flags that collect (`--middleware`). Dotted parts (`--compilation-config.level
3`) are merged into one JSON object, and where any is written it takes the place of JSON given in one piece, because
vLLM appends the merged object at the end of its arguments (vllm/utils/argparse_utils.py, parse_args).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from repro.domain.command.flag import Flag, FlagValue, make_flag
from repro.domain.command.flag_names import canonical, read_name
from repro.domain.command.flag_spec import FlagKind
from repro.domain.command.whole_numbers import as_int


def value_of(flags: Sequence[Flag], name: str) -> FlagValue:
    """The value that vLLM would use for a flag, by any of its names; None when it is absent.

    A flag of JSON whose parts are written with dots gives the merged object as JSON text; a dotted name gives the
    part's text, whether it was written with dots or inside JSON.
    """
    target = canonical(name)
    base, dot, path = target.partition(".")
    if dot:
        exact = [f.value for f in _dotted(flags, base) if f.name == target]
        return exact[-1] if exact else _part(_object(flags, base), path.split("."))
    if _dotted(flags, base):
        return json.dumps(_object(flags, base), ensure_ascii=False)
    own = [f for f in flags if f.name == target]
    if not own:
        return None
    collected = [v for f in own for v in (f.value if isinstance(f.value, tuple) else (f.value,)) if isinstance(v, str)]
    return tuple(collected) if _collects(target) and (len(own) > 1 or own[0].known) and collected else own[-1].value


def with_value(flags: Sequence[Flag], name: str, value: FlagValue) -> tuple[Flag, ...]:
    """The flags with one of them set, replaced in its place or appended, or removed by None."""
    target = canonical(name)
    base, dot, path = target.partition(".")
    whole = [f for f in flags if f.name == base]
    if dot and whole and not _dotted(flags, base):
        inside = _object(flags, base)
        if inside is not None:
            _set_part(
                inside, path.split("."), None if value is None else json_value(_dotted_text(value)), value is None
            )
            return with_value(flags, base, json.dumps(inside, ensure_ascii=False) if inside else None)
    gone = [i for i, f in enumerate(flags) if f.name == target or f.name.startswith(target + ".")]
    kept = [f for i, f in enumerate(flags) if i not in gone]
    spec = read_name(target).spec
    if value is None or (value is False and spec is not None and spec.kind is FlagKind.SWITCH):
        return tuple(kept)  # a switch has no --no- form: off is absent
    place = gone[-1] - len(gone) + 1 if gone else len(kept)
    like = _spelling(flags, target) if dot else flags[gone[-1]] if gone and flags[gone[-1]].name == target else None
    return (*kept[:place], *_made(target, value, like), *kept[place:])


def json_value(text: str) -> Any:
    """A dotted part's text as vLLM reads it: JSON, else a number with a suffix, else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        number = as_int(text)
        return text if number is None or text.strip().lower() == "auto" else number


def _made(target: str, value: FlagValue, like: Flag | None) -> Iterable[Flag]:
    if isinstance(value, tuple) and len(value) > 1 and _collects(target):
        return [make_flag(target, (v,) if read_name(target).spec else v, like) for v in value]
    if "." in target and not isinstance(value, str):
        return [make_flag(target, _dotted_text(value), like)]
    return [make_flag(target, value, like)]


def _dotted(flags: Sequence[Flag], base: str) -> Sequence[Flag]:
    """The dotted parts in force. vLLM merges those of one spelling only: of `-cc.a 1 --compilation-config.b 2` the
    spelling that begins last takes all, here b.
    """
    groups: dict[str, list[Flag]] = {}
    for flag in flags:
        if flag.name.startswith(base + "."):
            groups.setdefault(flag.written.partition(".")[0].replace("_", "-"), []).append(flag)
    return list(groups.values())[-1] if groups else ()


def _spelling(flags: Sequence[Flag], target: str) -> Flag | None:
    """A flag to spell a dotted part like, so that it is merged with those already in force."""
    base, _, path = target.partition(".")
    group = _dotted(flags, base)
    if not group:
        return None
    exact = [f for f in group if f.name == target]
    return exact[-1] if exact else Flag(target, f"{group[-1].written.partition('.')[0]}.{path}", "")


def _collects(name: str) -> bool:
    spec = read_name(name).spec
    return spec is None or spec.kind is FlagKind.REPEATED


def _dotted_text(value: FlagValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _object(flags: Sequence[Flag], base: str) -> dict[str, Any] | None:
    """The JSON object that vLLM would build for a flag, None where there is none."""
    dotted = _dotted(flags, base)
    if dotted:
        merged: dict[str, Any] = {}
        for flag in dotted:
            *keys, last = flag.name.split(".")[1:]
            value = json_value(_dotted_text(flag.value))
            if last.endswith("+"):
                last, value = last[:-1], _dotted_text(flag.value).split(",")
            _merge(merged, keys, last, value)
        return merged
    texts = [f.value for f in flags if f.name == base and isinstance(f.value, str)]
    try:
        whole = json.loads(texts[-1]) if texts else None
    except ValueError:
        return None
    return whole if isinstance(whole, dict) else None


def _merge(into: dict[str, Any], keys: Sequence[str], last: str, value: Any) -> None:
    for key in keys:
        if not isinstance(into.get(key), dict):
            into[key] = {}
        into = into[key]
    if isinstance(value, dict) and isinstance(into.get(last), dict):
        for key, inner in value.items():
            _merge(into[last], (), key, inner)
    elif isinstance(value, list) and isinstance(into.get(last), list):
        into[last] = into[last] + value
    else:
        into[last] = value


def _part(whole: dict[str, Any] | None, path: Sequence[str]) -> FlagValue:
    at: Any = whole
    for key in path:
        if not isinstance(at, dict) or key not in at:
            return None
        at = at[key]
    return at if isinstance(at, str) else json.dumps(at, ensure_ascii=False)


def _set_part(whole: dict[str, Any], path: Sequence[str], value: Any, remove: bool) -> None:
    *keys, last = path
    at = whole
    for key in keys:
        if not isinstance(at.get(key), dict):
            if remove:
                return
            at[key] = {}
        at = at[key]
    if remove:
        at.pop(last, None)
    else:
        at[last] = value
