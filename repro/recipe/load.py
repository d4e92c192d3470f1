"""TOML file in, checked model out; every complaint names file, line, key, what is wrong and how to mend it."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from repro.recipe.model import Recipe
from repro.recipe.source import Keys, Source, spelled

M = TypeVar("M", bound=BaseModel)

_TOML_TYPES = {
    "str": "text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "list": "a list",
    "dict": "a table",
    "date": "a date",
    "datetime": "a date",
}


def load_recipe(path: Path) -> Recipe:
    """Read and check one baseline file; InvalidFile when it cannot be used."""
    return checked(Source.read(path), Recipe)


def checked(source: Source, model: type[M]) -> M:
    """The document as an instance of `model`; the first error in the file's order is the one that is reported."""
    document = source.parse()
    try:
        return model.model_validate(document)
    except ValidationError as error:
        details = [d for d in error.errors(include_url=False) if not _inside_union(d)] or error.errors()
        raise _explained(source, model, _first(source, details)) from error


def _inside_union(detail: ErrorDetails) -> bool:
    """Whether the path ends in the name of a union's branch (`flags`, `--x`, `bool`), which is no key of the file."""
    return False if not detail["loc"] else str(detail["loc"][-1]) in _BRANCHES


_BRANCHES = frozenset(["bool", "int", "float", "str", "list[str]"])


def _first(source: Source, details: list[ErrorDetails]) -> ErrorDetails:
    return min(details, key=lambda detail: source.line_of(_keys(detail)) or 0)


def _keys(detail: ErrorDetails) -> Keys:
    return tuple(key for key in detail["loc"] if str(key) not in _BRANCHES)


def _explained(source: Source, model: type[BaseModel], detail: ErrorDetails) -> Exception:
    keys = _keys(detail)
    match detail["type"]:
        case "extra_forbidden":
            return source.error(keys, "this key is not known", _known_keys(model, keys))
        case "missing":
            what = f"the key {keys[-1]!r} is missing"
            return source.error(keys[:-1], what, f"Add it. {_described(model, keys)}".rstrip())
        case "value_error":
            said = detail["msg"].removeprefix("Value error, ")
            return source.error(keys, said, "Change it as the message says.")
        case _:
            said = detail["msg"].removeprefix("Input ")
            # The value itself is not repeated: it may be a secret in the wrong place.
            given = _TOML_TYPES.get(type(detail["input"]).__name__, "something else")
            return source.error(keys, f"{said}, but it is {given}", _described(model, keys) or "Change the value.")


def _known_keys(model: type[BaseModel], keys: Keys) -> str:
    known = sorted(_schema_at(model, keys[:-1]).get("properties", {}))
    near = get_close_matches(str(keys[-1]), known, n=1)
    place = spelled(keys[:-1]) or "the top of the file"
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return f"{meant}Known in {place}: {', '.join(known)}."


def _described(model: type[BaseModel], keys: Keys) -> str:
    text = _schema_at(model, keys).get("description", "")
    return text if keys and isinstance(text, str) else ""


def _schema_at(model: type[BaseModel], keys: Keys) -> dict[str, Any]:
    """The part of the JSON Schema that describes the value under this path; empty where the path leaves the schema."""
    whole = model.model_json_schema(by_alias=True)
    place: dict[str, Any] = whole
    for key in keys:
        place = _resolved(whole, place)
        options = [_resolved(whole, option) for option in place.get("anyOf", [place])]
        step = "items" if isinstance(key, int) else "properties"
        place = next((o[step] if isinstance(key, int) else o[step].get(key, {}) for o in options if step in o), {})
    return {**_resolved(whole, place), **{k: v for k, v in place.items() if k == "description"}}


def _resolved(whole: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    reference = place.get("$ref")
    if not isinstance(reference, str):
        return place
    found: dict[str, Any] = whole["$defs"][reference.rsplit("/", 1)[1]]
    return found
