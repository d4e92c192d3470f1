"""One value as Python prints it, objects included, -> plain JSON-like data.

Configurations in vLLM's log are printed as objects ("KVTransferConfig(kv_role='kv_both', kv_port=14579)"): their
fields are read as the keys of the JSON that the flag takes. A field that is None or empty is left out, since it says
what its absence says.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

_ENUM_MEMBER = re.compile(r"<\w+\.(\w+): ([^<>]*)>")
_LITERAL_NAMES = {"null": None, "true": True, "false": False}


class Unreadable(ValueError):
    """The text holds something that is not data."""


def read_printed(text: str) -> Any:
    """None, a bool, number, string, list or dict. Raises Unreadable."""
    try:
        tree = ast.parse(_ENUM_MEMBER.sub(_member, text.strip()), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise Unreadable(text) from error
    return _value(tree.body)


def without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    """An object's fields without those that are None or empty."""
    return {name: value for name, value in fields.items() if value is not None and value not in ([], {}, "")}


def _member(match: re.Match[str]) -> str:
    """An enum member by its value where that is a number or a text, else by its name."""
    name, value = match.groups()
    return value if re.fullmatch(r"-?\d+|'[^'\\]*'", value) else json.dumps(name)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if isinstance(value, str | int | float | bool | None):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(k): _value(v) for k, v in zip(keys, values, strict=True) if k is not None}
        case ast.Name(id=name) if name in _LITERAL_NAMES:
            return _LITERAL_NAMES[name]
        case ast.Attribute(attr=name):  # Backend.FLASH_ATTN, torch.bfloat16
            return name
        case ast.Call(func=ast.Name(), args=[only], keywords=[]):  # PosixPath('/x')
            return _value(only)
        case ast.Call(func=ast.Name(), args=[], keywords=fields):
            return without_empty({f.arg: _value(f.value) for f in fields if f.arg is not None})
        case _:
            raise Unreadable(ast.unparse(node))


def _number(node: ast.expr) -> Any:
    value = _value(node)
    if not isinstance(value, int | float):
        raise Unreadable(ast.unparse(node))
    return value
