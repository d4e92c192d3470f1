"""The small language in which a fault file says when a fault holds, read by a whitelist and never by `eval`.

An expression may use `and or not`, comparisons (`== != < <= > >= in not in`, chained too), `+ - * // %` on numbers,
number, string, true and false constants, tuples of these, the names that `LAUNCH_FACTS` and `REQUEST_FACTS` list,
`flag('--name')` and `env('NAME')`. Every part is always evaluated (no short cut), so that a type mistake shows when
the file is read and not at the request that first reaches it. An order comparison with an absent value (None) does
not hold.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LAUNCH_FACTS = frozenset(
    "prefix_caching nnodes nodes node_rank tensor_parallel_size pipeline_parallel_size data_parallel_size "
    "max_model_len enforce_eager expert_parallel speculative model".split()
)
REQUEST_FACTS = frozenset(
    "input_tokens max_tokens output_tokens cached_tokens concurrency served_requests soak_seconds stream has_tools "
    "tool_calls reasoning_effort temperature text".split()
)
_MAX_LENGTH = 2000
_MAX_NUMBER = 10**18

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class ConditionError(ValueError):
    """The expression is not one of this language, or compares what cannot be compared."""


@dataclass(frozen=True)
class Facts:
    """What an expression may ask about: named facts, the flags in force, the environment."""

    names: Mapping[str, Any]
    flag: Callable[[str], Any]
    env: Mapping[str, str] = field(default_factory=dict)


class Condition:
    """A parsed expression. `names` and `flags` are those it uses, for checks by whoever knows which exist."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_LENGTH:
            raise ConditionError(f"longer than {_MAX_LENGTH} characters")
        try:
            self._body = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ConditionError(f"not an expression: {error}") from None
        self.text = text
        self.names: set[str] = set()
        self.flags: set[str] = set()
        self._check(self._body)

    def holds(self, facts: Facts) -> bool:
        """Whether the expression is true of these facts; raises ConditionError on a comparison without meaning."""
        try:
            return bool(self._value(self._body, facts))
        except (TypeError, ZeroDivisionError, RecursionError) as error:
            raise ConditionError(f"{self.text!r}: {error}") from None

    def _check(self, node: ast.expr) -> None:
        match node:
            case ast.BoolOp(values=values) | ast.Tuple(elts=values) | ast.List(elts=values):
                for value in values:
                    self._check(value)
            case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
                self._check(operand)
            case ast.Compare(left=left, comparators=comparators):
                for value in (left, *comparators):
                    self._check(value)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                self._check(left)
                self._check(right)
            case ast.Constant(value=bool() | int() | float() | str() | None):
                pass
            case ast.Name(id="true" | "false"):
                pass
            case ast.Name(id=name) if name in LAUNCH_FACTS | REQUEST_FACTS:
                self.names.add(name)
            case ast.Name(id=name):
                known = ", ".join(sorted(LAUNCH_FACTS | REQUEST_FACTS))
                raise ConditionError(f"unknown name {name!r}; known are {known}, flag('--x'), env('X')")
            case ast.Call(func=ast.Name(id="flag"), args=[ast.Constant(value=str(argument))], keywords=[]):
                self.flags.add(argument)
            case ast.Call(func=ast.Name(id="env"), args=[ast.Constant(value=str())], keywords=[]):
                pass
            case _:
                raise ConditionError(f"{ast.unparse(node)!r} is not allowed in a condition")

    def _value(self, node: ast.expr, facts: Facts) -> Any:
        match node:
            case ast.BoolOp(op=op, values=values):
                found = [self._value(value, facts) for value in values]
                return all(found) if isinstance(op, ast.And) else any(found)
            case ast.UnaryOp(op=op, operand=operand):
                value = self._value(operand, facts)
                return not value if isinstance(op, ast.Not) else -value
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                values = [self._value(value, facts) for value in (left, *comparators)]
                compared = [_compare(op, a, b) for op, a, b in zip(ops, values, values[1:], strict=False)]
                return all(compared)
            case ast.BinOp(left=left, op=arithmetic, right=right):
                return _calculate(arithmetic, self._value(left, facts), self._value(right, facts))
            case ast.Constant(value=constant):
                return constant
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return tuple(self._value(element, facts) for element in elements)
            case ast.Name(id="true"):
                return True
            case ast.Name(id="false"):
                return False
            case ast.Name(id=name):
                return facts.names.get(name)
            case ast.Call(func=ast.Name(id="flag"), args=[ast.Constant(value=str(argument))]):
                return facts.flag(argument)
            case ast.Call(args=[ast.Constant(value=str(argument))]):
                return facts.env.get(argument)
        raise ConditionError(f"{ast.unparse(node)!r} is not allowed in a condition")


def _compare(op: ast.cmpop, left: Any, right: Any) -> bool:
    ordered = isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    if ordered and (left is None or right is None):
        return False
    if isinstance(op, ast.In | ast.NotIn) and right is None:
        return isinstance(op, ast.NotIn)
    return bool(_COMPARE[type(op)](left, right))


def _calculate(op: ast.operator, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise TypeError("arithmetic is for numbers")
    result = _ARITHMETIC[type(op)](left, right)
    if abs(result) > _MAX_NUMBER:
        raise TypeError(f"the number grows beyond {_MAX_NUMBER}")
    return result
