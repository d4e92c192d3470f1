"""The condition language: what it says, and that nothing but it can be said."""

from __future__ import annotations

import pytest

from repro.simulator.condition import Condition, ConditionError, Facts

FLAGS = {"--kv-cache-dtype": "fp8", "--max-num-seqs": None, "--port": 8000}
FACTS = Facts(
    {"prefix_caching": True, "input_tokens": 32768, "concurrency": 8, "stream": False, "nnodes": 2, "max_tokens": 5000},
    FLAGS.get,
    {"NCCL_P2P_DISABLE": "1"},
)


@pytest.mark.parametrize(
    "text",
    [
        "prefix_caching and input_tokens >= 32768",
        "flag('--kv-cache-dtype') == 'fp8'",
        "env('NCCL_P2P_DISABLE') == '1'",
        "concurrency >= 8",
        "not stream",
        "nnodes > 1",
        "100 < input_tokens <= 32768",
        "input_tokens % 1024 == 0 and input_tokens // 1024 == 32",
        "flag('--kv-cache-dtype') in ('fp8', 'fp8_e5m2')",
        "flag('--max-num-seqs') == None",
        "true and not false",
        "-1 < 0",
    ],
)
def test_it_holds(text: str) -> None:
    assert Condition(text).holds(FACTS)


@pytest.mark.parametrize(
    "text",
    [
        "prefix_caching and input_tokens > 32768",
        "stream or concurrency < 8",
        "env('NOT_SET') == '1'",
        "flag('--max-num-seqs') > 4",
        "flag('--max-num-seqs') + 1 > 0",
        "'a' in env('NOT_SET')",
        "false",
    ],
)
def test_it_does_not_hold(text: str) -> None:
    assert not Condition(text).holds(FACTS)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "flag.__class__",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "flag(env('X'))",
        "flag('--a', '--b')",
        "flag(name='--a')",
        "open('/etc/passwd')",
        "input_tokens ** 9",
        "f'{input_tokens}'",
        "(x := 1)",
        "input_tokens if stream else 1",
        "unknown_name",
        "input_tokens[0]",
        "1 << 5",
        "b'x' == 1",
        "1j == 1",
        "",
        "a b",
        "import os",
        "(" * 300 + "1" + ")" * 300,
        "1 == " + "1" * 3000,
    ],
)
def test_nothing_else_can_be_said(text: str) -> None:
    with pytest.raises(ConditionError):
        Condition(text)


@pytest.mark.parametrize(
    "text",
    [
        "flag('--kv-cache-dtype') > 3",
        "stream or flag('--kv-cache-dtype') > 3",
        "'a' * 9 == 'a'",
        "input_tokens % 0 == 1",
        "1000000000 * 1000000000 * 1000000000 > 0",
        "1 in 5",
    ],
)
def test_a_comparison_without_meaning_is_an_error_even_behind_an_or(text: str) -> None:
    with pytest.raises(ConditionError):
        Condition(text).holds(FACTS)


def test_it_tells_what_it_asks_for() -> None:
    condition = Condition("concurrency >= 8 and flag('-tp') == 8")
    assert condition.names == {"concurrency"}
    assert condition.flags == {"-tp"}
