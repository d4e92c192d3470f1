"""Reading and changing one flag: what vLLM would use, and nothing else touched."""

from __future__ import annotations

import pytest

from repro.domain.command import (
    FlagValue,
    as_int,
    canonical,
    is_layout,
    is_listen,
    is_ordinal,
    is_secret,
    parse,
    spec_of,
)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("-tp", "--tensor-parallel-size"),
        ("tensor_parallel_size", "--tensor-parallel-size"),
        ("--tensor_parallel-size", "--tensor-parallel-size"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("--device-memory-utilization", "--gpu-memory-utilization"),
        ("-O", "--optimization-level"),
        ("-O.level", "--compilation-config.level"),
        ("-cc.pass_config.fuse_x", "--compilation-config.pass_config.fuse_x"),
        ("--compilation_config.pass_config", "--compilation-config.pass_config"),
        ("--max-model", "--max-model-len"),
        ("--max", "--max"),
        ("--no-such_thing", "--such-thing"),
        ("env-like_name", "--env-like-name"),
    ],
)
def test_every_spelling_leads_to_one_name(written: str, name: str) -> None:
    assert canonical(written) == name
    assert canonical(name) == name


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("32000", 32_000),
        ("32k", 32_000),
        ("32K", 32_768),
        ("25.6k", 25_600),
        ("1M", 1_048_576),
        ("1m", 1_000_000),
        ("2G", 2**31),
        ("auto", -1),
        ("-1", -1),
        (" 8 ", 8),
        ("1.5K", None),
        ("0.9", None),
        ("", None),
        ("k", None),
    ],
)
def test_whole_numbers_are_read_as_vllm_reads_them(text: str, number: int | None) -> None:
    assert as_int(text) == number


def test_what_flags_are_about() -> None:
    assert is_ordinal("max_model_len")
    assert not is_ordinal("--port")
    assert not is_ordinal("--gpu-memory-utilization")
    assert is_layout("-tp")
    assert is_layout("--nnodes")
    assert not is_layout("--max-num-seqs")
    assert is_listen("--port")
    assert is_secret("--api-key")
    assert not is_secret("--tokenizer")
    old = spec_of("--num-scheduler-steps")
    assert old is not None
    assert (old.current, old.until) == (False, "0.10")
    assert spec_of("--never-was") is None


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        ("--port 1 --port 2", "--port", "2"),
        ("--enable-prefix-caching --no-enable-prefix-caching", "--enable-prefix-caching", False),
        ("--middleware a --middleware b", "--middleware", ("a", "b")),
        ("--served-model-name a b", "--served-model-name", ("a", "b")),
        ("--served-model-name a --served-model-name b", "--served-model-name", ("b",)),
        ("--hf-token", "--hf-token", True),
        ("--enable-chunked-prefill False", "--enable-chunked-prefill", False),
        ("--enable-chunked-prefill=true", "--enable-chunked-prefill", True),
        ("--strange a --strange b", "--strange", ("a", "b")),
        ("--strange", "--strange", True),
        ("-O3", "--optimization-level", "3"),
        ("-cc.mode 3 -cc.pass_config.a true", "-cc", '{"mode": 3, "pass_config": {"a": true}}'),
        ("-cc.sizes+ 1 -cc.sizes+ 2,4", "-cc.sizes", '["1", "2", "4"]'),
        ("-cc.a.b 80k", "-cc.a", '{"b": 80000}'),
        ("-cc '{\"x\": 1}' -cc.mode 3", "-cc", '{"mode": 3}'),
        ('-cc \'{"a": {"b": "c"}}\'', "-cc.a.b", "c"),
        ("-cc '{\"a\": 1}'", "-cc.a.b", None),
        ("-cc not-json", "-cc.a", None),
        ("--compilation-config.mode 3 -cc.x 1 --compilation-config.y 2", "-cc", '{"x": 1}'),
        ("--compilation-config.mode 3 -cc.x 1", "-cc.mode", None),
        ("--compilation-config.mode 3 --compilation_config.x 1", "-cc", '{"mode": 3, "x": 1}'),
    ],
)
def test_the_value_in_force(flags: str, name: str, value: FlagValue) -> None:
    assert parse(f"vllm serve m {flags}").flag(name) == value


@pytest.mark.parametrize(
    ("flags", "name", "value", "after"),
    [
        ("-tp 8 --port 1", "--tensor-parallel-size", "4", "-tp 4 --port 1"),
        ("-tp=8 --port 1", "-tp", "4", "-tp=4 --port 1"),
        ("-tp 8 --port 1", "-tp", None, "--port 1"),
        ("--port 1", "-tp", "8", "--port 1 --tensor-parallel-size 8"),
        ("--port 1 -pp 2 --port 3", "--port", "4", "-pp 2 --port 4"),
        ("--enable-prefix-caching --port 1", "--enable-prefix-caching", False, "--no-enable-prefix-caching --port 1"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching", True, "--enable-prefix-caching"),
        ("-ep", "-ep", False, "--no-enable-expert-parallel"),
        ("--headless --port 1", "--headless", False, "--port 1"),
        ("--middleware a --port 1", "--middleware", ("b", "c"), "--middleware b --middleware c --port 1"),
        ("--served-model-name a", "--served-model-name", ("b", "c"), "--served-model-name b c"),
        ("--chat-template x", "--chat-template", "-dash", "--chat-template=-dash"),
        ("-O3", "-O", "2", "--optimization-level=2"),
        ("-cc.mode 3 -cc.x 1", "-cc.mode", "2", "-cc.mode 2 -cc.x 1"),
        ("-cc.mode 3 -cc.x 1", "-cc.mode", None, "-cc.x 1"),
        ("-cc.x=1", "-cc.mode", "2", "-cc.x=1 -cc.mode 2"),
        ("--compilation-config.mode 3 -cc.x 1", "-cc.mode", "2", "-cc.mode 2 -cc.x 1"),
        ("-cc.mode 3 --port 1", "-cc", '{"mode":1}', """--compilation-config {"mode":1} --port 1"""),
        ("-cc '{\"mode\": 3}'", "-cc.mode", "2", '-cc {"mode": 2}'),
        ("-cc '{\"mode\": 3}' --port 1", "-cc.mode", None, "--port 1"),
        ("-cc '{\"mode\": 3}'", "-cc.a.b", "true", '-cc {"mode": 3, "a": {"b": true}}'),
    ],
)
def test_one_flag_is_changed_in_its_place(flags: str, name: str, value: FlagValue, after: str) -> None:
    changed = parse(f"vllm serve m {flags}").with_flag(name, value)
    assert " ".join(changed.argv()) == f"vllm serve m {after}"


def test_the_model_is_set_where_it_stands() -> None:
    assert parse("vllm serve m --port 1").with_flag("model", "n").argv() == ("vllm", "serve", "n", "--port", "1")
    by_flag = parse("python3 -m vllm.entrypoints.openai.api_server --model m --port 1")
    assert by_flag.with_flag("--model", "n").argv()[3:] == ("--model", "n", "--port", "1")
    assert parse("vllm serve --config c.yaml").with_flag("--model", "n").argv()[2:] == ("n", "--config", "c.yaml")


def test_a_change_never_swallows_a_model_that_stood_behind() -> None:
    command = parse("vllm serve --hf-token=abc m").with_flag("--hf-token", True)
    assert command.model == "m"
    assert parse(command.argv()).model == "m"


def test_several_values_for_a_flag_of_one_are_refused() -> None:
    with pytest.raises(ValueError, match="takes one value"):
        parse("vllm serve m").with_flag("--port", ("1", "2"))


def test_environment_is_changed_by_name() -> None:
    command = parse("A=1 B=2 HF_TOKEN=$HF_TOKEN vllm serve m")
    changed = command.with_environment("A", "x y").with_environment("B", None).with_environment("C", "3")
    assert changed.environment == (("A", "x y"), ("C", "3"))
    assert changed.environment_value("A") == "x y"
    assert changed.environment_value("B") is None
    assert changed.environment_from == ("HF_TOKEN",)
    assert changed.with_environment("HF_TOKEN", None).environment_from == ()
    assert command.environment_value("B") == "2"
