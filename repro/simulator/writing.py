"""Makes the text of an answer: deterministic nonsense of exactly as many tokens as asked, cheap at any length.

Words come from a hash of prompt and seed; every word is one token of `tokens`, so a client that counts the text gets
the usage's number. Values for tool calls and JSON answers are made from their schema.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from typing import Any

from repro.simulator import tokens
from repro.simulator.request_body import Body, Request

_WORDS = (
    "the of and to in is it for on with as at by from this that one two first last new old data node link rank cache "
    "block token model layer load step time state value test run start stop check mark line file name part whole "
    "small large quick calm clear plain even odd left right high low near far"
).split()
_TABLE = [" " + _WORDS[n % len(_WORDS)] for n in range(256)]
_SHORTEST_ANSWER = 24
_SPREAD = 32
_THOUGHTS = {"low": 8, "high": 48}
_MAX_DEPTH = 4


def natural_length(request: Request, number: int) -> int:
    """How many tokens the answer has if nothing limits it: 24 to 55, by the prompt."""
    return _SHORTEST_ANSWER + _digest(request, number, 1)[0] % _SPREAD


def thought_length(request: Request) -> int:
    """Tokens of reasoning before the answer; never more than half of what may be written."""
    return min(_THOUGHTS.get(request.reasoning_effort, 24), request.max_tokens // 2) if request.thinks else 0


def words(request: Request, number: int, count: int) -> list[str]:
    """`count` pieces of text, one token each. `number` matters only where the request asks for randomness."""
    pieces = [_TABLE[byte] for byte in _digest(request, number, count)]
    if pieces:
        pieces[0] = pieces[0].lstrip()
    return pieces


def example(schema: Any, depth: int = 0) -> Any:
    """A value that fits a JSON schema of the kinds that tools use."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return {}
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for several in ("anyOf", "oneOf"):
        if schema.get(several):
            return example(schema[several][0], depth + 1)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "array":
        return [example(schema.get("items", {"type": "string"}), depth + 1)] * max(int(schema.get("minItems", 1)), 1)
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: example(part, depth + 1) for name, part in properties.items()}
    plain = {"string": "Berlin", "integer": 1, "number": 1.5, "boolean": True}
    return schema.get("minimum", plain[kind]) if kind in ("integer", "number") else plain.get(kind)


def json_pieces(schema: Body) -> list[str]:
    return [tokens.decode([number]) for number in tokens.encode(json.dumps(example(schema)))]


def raw_tool_call(tool: Body) -> str:
    """A K3 tool call whose channels are never closed: what a parser cannot read."""
    name = tool.get("name", "")
    call = f'<|open|>tools<|sep|><|open|>call tool="{name}" index="1"<|sep|>'
    return call + '<|open|>argument key="q" type="string"<|sep|>Ber'


def _digest(request: Request, number: int, count: int) -> bytes:
    draw = request.seed if request.seed is not None else 0 if request.temperature == 0 else number
    source = hashlib.shake_256(array("q", request.prompt).tobytes() + str(draw).encode())
    return source.digest(count)
