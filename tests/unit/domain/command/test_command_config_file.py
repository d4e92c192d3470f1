"""--config: the file lies below the command line, as vLLM reads it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from repro.domain.command import apply_config, ignored_entries, parse


def applied(text: str, config: Mapping[str, object]) -> str:
    return " ".join(apply_config(parse(text), config).argv())


def test_the_command_line_wins() -> None:
    command = parse("vllm serve m --config c.yaml -tp 2 --no-enable-prefix-caching")
    assert command.config_path == "c.yaml"
    config = {"port": 12323, "tensor-parallel-size": 4, "enable_prefix_caching": True, "uvicorn-log-level": "info"}
    assert " ".join(apply_config(command, config).argv()) == (
        "vllm serve m --port 12323 --uvicorn-log-level info -tp 2 --no-enable-prefix-caching"
    )
    assert apply_config(command, config).config_path is None


@pytest.mark.parametrize(
    ("text", "config", "after"),
    [
        ("vllm serve --config c", {"model": "m", "port": 1}, "vllm serve m --port 1"),
        ("vllm serve n --config c", {"model": "m"}, "vllm serve n"),
        (
            "vllm serve m --config c",
            {"enforce-eager": True, "enable-lora": False},
            "vllm serve m --enforce-eager",
        ),
        ("vllm serve m --config c", {"headless": False, "port": 1}, "vllm serve m --port 1"),
        (
            "vllm serve m --config c",
            {"served-model-name": ["a", "b"], "port": 1},
            "vllm serve m --served-model-name a b --port 1",
        ),
        (
            "vllm serve m --config c",
            {"compilation-config": {"mode": 3}},
            'vllm serve m --compilation-config {"mode": 3}',
        ),
        ("vllm serve m --config c -cc.x 1", {"compilation-config": {"mode": 3}}, "vllm serve m -cc.x 1"),
        ("vllm serve m --middleware b", {"middleware": "a"}, "vllm serve m --middleware a --middleware b"),
        ("vllm serve m --config c", {"port": ["1", "2"]}, "vllm serve m 2 --port 1"),
        ("vllm serve m --config c", {"typo-here": 1}, "vllm serve m --typo-here 1"),
        ("vllm serve --port 1 m --config c", {"seed": 0}, "vllm serve --seed 0 --port 1 m"),
        ("vllm serve m --config c", {}, "vllm serve m"),
    ],
)
def test_entries_become_flags(text: str, config: Mapping[str, object], after: str) -> None:
    assert applied(text, config) == after


def test_a_false_that_vllm_passes_over_is_told() -> None:
    config = {"enable-prefix-caching": False, "enable_lora": False, "headless": False, "enforce-eager": True}
    serve = parse("vllm serve m --config c")
    assert ignored_entries(serve, config) == ("enable-prefix-caching", "enable_lora", "headless")
    assert apply_config(serve, config).flag("--enable-prefix-caching") is None
    module = parse("python3 -m vllm.entrypoints.openai.api_server --model m --config c")
    assert ignored_entries(module, config) == ("enable_lora", "headless")
    assert apply_config(module, config).flag("--enable-prefix-caching") is False
