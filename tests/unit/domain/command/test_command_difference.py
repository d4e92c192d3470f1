"""Commands are compared by meaning, flag by flag."""

from __future__ import annotations

import pytest

from repro.domain.command import Difference, difference, parse


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("vllm serve m -tp 8", "vllm serve --tensor_parallel_size=8 m"),
        ("vllm serve m --port 1 -pp 2", "vllm serve m -pp 2 --port 1"),
        ("vllm serve m --max-model-len 32k", "vllm serve m --max-model-len 32000"),
        ("vllm serve m --served-model-name a", "vllm serve m --served-model-name=a"),
        ("""vllm serve m -cc '{"a":1,"b":{"c":true}}'""", "vllm serve m -cc.b.c true -cc.a 1"),
        ("""vllm serve m -cc '{"a": 1, "b": 2}'""", """vllm serve m --compilation-config '{"b":2,"a":1}'"""),
        ("vllm serve m --port 1 --port 2", "vllm serve m --port 2"),
        ("A=1 B=2 vllm serve m", "env B=2 A=1 vllm serve m"),
        ("bash -c 'vllm serve m'", "vllm serve m"),
        ("vllm serve m --headless", "vllm serve --model m --headless"),
    ],
)
def test_the_same_written_otherwise(left: str, right: str) -> None:
    a, b = parse(left), parse(right)
    assert [d for d in difference(a, b) if d.name != "launcher"] == []


def names(left: str, right: str) -> list[str]:
    return [d.name for d in difference(parse(left), parse(right))]


def test_flags_first_in_written_order_then_environment() -> None:
    left = "A=1 B=1 vllm serve m -tp 8 --kv-cache-dtype fp8 --enable-prefix-caching"
    right = "B=2 C=3 vllm serve m --no-enable-prefix-caching --max-num-seqs 48 -tp 8"
    assert difference(parse(left), parse(right)) == (
        Difference("--kv-cache-dtype", "fp8", None),
        Difference("--enable-prefix-caching", True, False),
        Difference("--max-num-seqs", None, "48"),
        Difference("env:A", "1", None),
        Difference("env:B", "1", "2"),
        Difference("env:C", None, "3"),
    )


def test_dotted_parts_differ_one_by_one_unless_one_side_is_whole() -> None:
    assert names("vllm serve m -cc.a 1 -cc.b 2", "vllm serve m -cc.a 1 -cc.c 3") == [
        "--compilation-config.b",
        "--compilation-config.c",
    ]
    assert names("vllm serve m -cc.a 1", """vllm serve m -cc '{"a":2}'""") == ["--compilation-config"]


def test_json_true_is_not_one() -> None:
    assert names("""vllm serve m -cc '{"a":1}'""", """vllm serve m -cc '{"a":true}'""") == ["--compilation-config"]


def test_heads_and_what_stands_around() -> None:
    left = "vllm serve m"
    right = "nohup /opt/bin/vllm serve n"
    assert names(left, right) == ["program", "model", "launcher"]
    left = "docker run --gpus all --shm-size 1g -e A=1 vllm/vllm-openai:v0.29.0 m"
    right = "docker run --gpus all --shm-size 2g -e A vllm/vllm-openai:v0.32.0 m"
    assert difference(parse(left), parse(right)) == (
        Difference("env:A", "1", "$A"),
        Difference("image", "vllm/vllm-openai:v0.29.0", "vllm/vllm-openai:v0.32.0"),
        Difference("docker:--shm-size", ("1g",), ("2g",)),
    )
