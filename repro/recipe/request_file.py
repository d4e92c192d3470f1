"""Production's request and tools as a scenario gives them: written in place, or in a JSON file beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from repro.domain.request import Request
from repro.domain.scene import canonical_json
from repro.errors import InvalidFile
from repro.recipe.scenario import RequestPart
from repro.recipe.source import Keys, Source


def request_of(part: RequestPart, source: Source) -> Request | None:
    """The request of a scenario, None where seeded text is to be sent."""
    if part.body is not None:
        try:
            return Request.of(part.path, part.body)
        except TypeError as error:
            what = f"a value cannot be sent as JSON ({error})"
            raise source.error(("request", "body"), what, "Write dates and times as text, in quotes.") from error
    if part.body_json is not None:
        return Request.of(part.path, _json_object(part.body_json, source, ("request", "body_json")))
    if part.file is not None:
        return Request.of(part.path, _json_object(_beside(part.file, source, "file"), source, ("request", "file")))
    return None


def tools_of(part: RequestPart, source: Source) -> str | None:
    """The tool definitions given beside the request, as a canonical JSON array."""
    if part.tools_json is not None:
        return _json_tools(part.tools_json, source, ("request", "tools_json"))
    if part.tools_file is not None:
        return _json_tools(_beside(part.tools_file, source, "tools_file"), source, ("request", "tools_file"))
    return None


def read_request(path: Path, url_path: str) -> Request:
    """A request from a JSON file given on the command line; InvalidFile when it holds no JSON object."""
    return Request.of(url_path, _json_object(Source.read(path).text, Source(str(path), ""), ()))


def read_tools(path: Path) -> str:
    """Tool definitions from a JSON file given on the command line, as a canonical JSON array."""
    return _json_tools(Source.read(path).text, Source(str(path), ""), ())


def _beside(name: str, source: Source, key: str) -> str:
    try:
        return Source.read(source.folder / name).text
    except InvalidFile as error:
        raise source.error(("request", key), error.message, error.hint) from error


def _json_object(text: str, source: Source, keys: Keys) -> dict[str, Any]:
    value = _json(text, source, keys)
    if not isinstance(value, dict):
        raise source.error(keys, "the request's body is no JSON object", 'It begins with {"model": …, "messages": …}.')
    return value


def _json_tools(text: str, source: Source, keys: Keys) -> str:
    value = _json(text, source, keys)
    if isinstance(value, dict):
        value = value.get("tools")
    if not isinstance(value, list) or not value or not all(isinstance(tool, dict) for tool in value):
        mend = 'Expected [{"type": "function", "function": {"name": …}}, …], as in a request\'s "tools".'
        raise source.error(keys, "this is no JSON list of tool definitions", mend)
    return canonical_json(value)


def _json(text: str, source: Source, keys: Keys) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise source.error(keys, f"not valid JSON: {error}", "Check it with `python -m json.tool FILE`.") from error
