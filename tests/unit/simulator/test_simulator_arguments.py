"""The command line of `vllm serve`: every form of a flag, and refusals in argparse's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.simulator.arguments import destination_of, human_readable_int, parse
from repro.simulator.flag_table import DEFAULTS, SHORT_FORMS

K3 = (
    "moonshotai/Kimi-K3 -tp 8 --trust-remote-code --load-format fastsafetensors --no-enable-prefix-caching "
    "--max_model_len=1M --gpu-memory-utilization 0.95 -O3 --served-model-name k3 kimi --enable-auto-tool-choice "
    "--tool-call-parser kimi_k3 --kv-cache-dtype fp8 -cc.mode none --compilation-config.pass_config.fuse true"
)


def test_a_production_command_is_understood() -> None:
    arguments = parse(K3.split())
    assert arguments.model == "moonshotai/Kimi-K3"
    assert arguments.value("tensor_parallel_size") == 8
    assert arguments.value("enable_prefix_caching") is False
    assert arguments.value("max_model_len") == 1048576
    assert arguments.value("optimization_level") == "3"
    assert arguments.served_names == ("k3", "kimi")
    assert arguments.value("compilation_config") == {"mode": "none", "pass_config": {"fuse": True}}


def test_what_is_not_given_has_vllms_default() -> None:
    arguments = parse(["m"])
    assert arguments.value("enable_prefix_caching") is True
    assert arguments.value("port") == 8000
    assert arguments.value("enforce_eager") is False
    assert arguments.value("max_model_len") is None
    assert arguments.served_names == ("m",)


def test_the_log_shows_what_differs_from_the_defaults_and_no_secret() -> None:
    shown = parse("m --port 8000 --enforce-eager --api-key s3cret --hf-token hf_x".split()).non_default()
    assert list(shown) == ["model_tag", "api_key", "enforce_eager", "hf_token", "model"]
    assert "s3cret" not in str(shown)
    assert "hf_x" not in str(shown)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("m --not-a-flag", "vllm: error: unrecognized arguments: --not-a-flag"),
        ("m --no-such-flag=3 --port 1", "vllm: error: unrecognized arguments: --no-such-flag=3"),
        ("m --kv-cache-dtype fp9", "vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp9'"),
        ("m --port x", "vllm serve: error: argument --port: invalid int value: 'x'"),
        ("m --port", "vllm serve: error: argument --port: expected one argument"),
        ("m --compilation-config {", "argument --compilation-config/-cc: invalid loads value"),
    ],
)
def test_a_wrong_command_is_refused_with_2(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words.split())
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("usage: vllm")
    assert said in told


def test_a_config_file_comes_before_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("model: from-file\nport: 9000\nenforce-eager: true\nserved-model-name: [a, b]\n", encoding="utf-8")
    arguments = parse(["--config", str(file), "--port", "9001"])
    assert arguments.model == "from-file"
    assert arguments.value("port") == 9001
    assert arguments.value("enforce_eager") is True
    assert arguments.served_names == ("a", "b")
    assert parse(["written", "--config", str(file)]).model == "written"


@pytest.mark.parametrize(
    ("text", "number"), [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5M", 1572864), ("auto", -1)]
)
def test_lengths_may_be_written_short(text: str, number: int) -> None:
    assert human_readable_int(text) == number


def test_every_short_form_and_default_belongs_to_a_known_flag() -> None:
    assert all(destination_of(form) and destination_of(f"--{name}") for form, name in SHORT_FORMS.items())
    assert all(destination_of(f"--{name.replace('_', '-')}") == name for name in DEFAULTS)
    assert destination_of("--no-enable-prefix-caching") == "enable_prefix_caching"
    assert destination_of("--nonsense") is None
