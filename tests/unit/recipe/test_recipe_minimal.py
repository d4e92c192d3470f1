"""Production minus what the recipe does not require is minimal; what cannot be compared is taken off and told."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.domain.command import difference, parse
from repro.domain.request import Request
from repro.domain.variable import Configuration, Kind
from repro.recipe.asked import Asked
from repro.recipe.find import find_recipe
from repro.recipe.minimal import Captured, Derived, derive
from repro.recipe.model import Recipe

SEEDED = Asked(input_tokens=3000, max_tokens=512, concurrency=8)
NOTHING_ASKED = Asked(input_tokens=20, max_tokens=1, concurrency=1)


def derived(
    line: str, recipe: str | Recipe = "generic", asked: Asked = NOTHING_ASKED, version: str = "0.32.0"
) -> Derived:
    found = find_recipe(recipe) if isinstance(recipe, str) else recipe
    return derive(parse(line), found, asked, name="t", captured=Captured(vllm_version=version))


def names(found: Derived) -> list[str]:
    return [variable.name for variable in found.scene.variables]


def test_kimi_k3_comes_down_to_its_recipe() -> None:
    found = derived(
        "vllm serve moonshotai/Kimi-K3 --tensor-parallel-size 8 --trust-remote-code --load-format fastsafetensors "
        "--gpu-memory-utilization 0.95 --kv-cache-dtype fp8 --enable-prefix-caching --enable-auto-tool-choice "
        "--tool-call-parser kimi_k3 --reasoning-parser kimi_k3",
        "kimi-k3-b300",
        SEEDED,
    )
    assert found.scene.minimal.argv() == (
        *(find_recipe("kimi-k3-b300").minimal_argv or ()),
        "--no-enable-prefix-caching",
    )
    assert names(found) == [
        *("input_tokens", "max_tokens", "concurrency", "prefix_caching", "--tool-call-parser"),
        *("--gpu-memory-utilization", "--kv-cache-dtype", "--reasoning-parser"),
    ]
    assert found.scene.variable("--tool-call-parser").parts == ("--tool-call-parser", "--enable-auto-tool-choice")
    assert found.notes == ()
    assert (found.scene.recipe, found.scene.recipe_digest) == ("kimi-k3-b300", find_recipe("kimi-k3-b300").digest)


def test_a_flag_that_the_recipe_needs_is_minimal_even_where_production_lacks_it() -> None:
    found = derived("vllm serve moonshotai/Kimi-K3 -tp 8 --load-format auto --no-enable-prefix-caching", "kimi-k3-b300")
    assert found.scene.minimal.flag("--trust-remote-code") is True
    assert found.scene.variable("--trust-remote-code").production is None
    load = found.scene.variable("--load-format")
    assert (load.minimal, load.production) == ("fastsafetensors", "auto")


def test_the_parallel_layout_is_productions_on_both_ends_whatever_the_recipe_says() -> None:
    layout = "-tp 16 -pp 2 --enable-expert-parallel --data-parallel-size 2 --distributed-executor-backend ray"
    found = derived(f"vllm serve moonshotai/Kimi-K3 {layout} --enforce-eager", "kimi-k3-b300")
    for flag in ("-tp", "-pp", "-ep", "-dp", "--distributed-executor-backend"):
        assert found.scene.minimal.flag(flag) == found.scene.production.flag(flag) is not None
    assert any("--tensor-parallel-size 8" in note for note in found.notes)


NODES = "--nnodes 2 --node-rank 0 --master-addr 10.0.0.1"


def test_nodes_vary_only_where_the_model_and_the_layout_fit_one_node() -> None:
    fits = derived(f"vllm serve moonshotai/Kimi-K3 -tp 8 {NODES}", "kimi-k3-b300")
    nodes = fits.scene.variable("nodes")
    assert nodes.parts == ("--nnodes", "--node-rank", "--master-addr")
    assert nodes.minimal is None
    assert fits.scene.minimal.flag("--nnodes") is None
    assert names(fits)[:2] == ["nodes", "prefix_caching"]

    wide = derived(f"vllm serve moonshotai/Kimi-K3 -tp 8 -pp 2 {NODES}", "kimi-k3-b300")
    assert "nodes" not in names(wide)
    assert any("16 ranks" in note for note in wide.notes)

    unknown = derived(f"vllm serve m/x -tp 8 {NODES}", "generic")
    assert "nodes" not in names(unknown)
    assert unknown.scene.minimal.flag("--master-addr") == "10.0.0.1"


@pytest.mark.parametrize(
    ("flags", "recipe", "version", "production", "noted"),
    [
        ("", "generic", "0.27.0", "on", True),
        ("", "kimi-k3-b300", "0.27.1", "off", True),
        ("", "kimi-k3-b300", "0.28.0", "on", True),
        ("--enable-prefix-caching", "kimi-k3-b300", "0.27.1", "on", False),
        ("--no-enable-prefix-caching", "generic", "0.32.0", "off", False),
    ],
)
def test_prefix_caching_is_written_out_on_both_ends(
    flags: str, recipe: str, version: str, production: str, noted: bool
) -> None:
    found = derived(f"vllm serve m/x {flags} --enforce-eager", recipe, version=version)
    assert found.scene.production.flag("--enable-prefix-caching") is (production == "on")
    assert found.scene.minimal.flag("--enable-prefix-caching") is False
    assert ("prefix_caching" in names(found)) is (production == "on")
    assert any("prefix caching" in note for note in found.notes) is noted


def test_where_it_listens_and_secrets_are_taken_off_both_ends_and_told() -> None:
    found = derived(
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789 vllm serve m/x --host 0.0.0.0 --port 8000 "
        "--api-key sk-very-secret-value-123 --seed 3"
    )
    scene = found.scene
    for command in (scene.minimal, scene.production):
        assert not {"--host", "--port", "--api-key"} & {flag.name for flag in command.flags}
        assert command.environment == ()
    assert scene.environment_from == ("HF_TOKEN", "VLLM_API_KEY")
    told = "\n".join(found.notes)
    for name in ("--host", "--port", "--api-key", "VLLM_API_KEY", "HF_TOKEN"):
        assert name in told
    assert "secret-value" not in told
    assert "abcdefgh" not in told + repr(scene)


def test_a_secret_that_cannot_be_taken_off_is_told() -> None:
    inside = """--model-loader-extra-config '{"aws_secret_access_key": "abcdefghijkl0123456789ABCDEFGHijkl"}'"""
    found = derived(f"vllm serve m/x {inside}")
    assert any("--model-loader-extra-config holds a secret" in note for note in found.notes)
    assert "abcdefghijkl" not in "".join(found.notes)


def test_written_environment_varies_and_captured_environment_is_fixed() -> None:
    found = derive(
        parse("NCCL_P2P_DISABLE=1 CUDA_VISIBLE_DEVICES=0,1 vllm serve m/x --seed 3"),
        find_recipe("generic"),
        NOTHING_ASKED,
        name="t",
        captured=Captured({"NCCL_DEBUG": "WARN", "HOME": "/root", "HF_TOKEN": "hf_a"}, ("VLLM_API_KEY",), "0.32.0"),
    )
    assert names(found) == ["prefix_caching", "--seed", "env:NCCL_P2P_DISABLE"]
    assert dict(found.scene.minimal.environment) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    # By allowlist: what no launch reads is left out, and a secret is kept as a name.
    assert found.scene.environment == (("NCCL_DEBUG", "WARN"),)
    assert found.scene.environment_from == ("HF_TOKEN", "VLLM_API_KEY")


def test_what_decides_which_model_is_loaded_stays() -> None:
    kept = "--revision r1 --tokenizer t --tokenizer-mode slow --trust-remote-code --load-format dummy"
    found = derived(f"vllm serve m/x {kept} --served-model-name s --chat-template c.jinja")
    assert names(found) == ["prefix_caching", "--chat-template"]


def test_flags_that_only_make_sense_together_are_one_variable() -> None:
    found = derived("vllm serve m/x --max-loras 4 --enable-lora --max-lora-rank 64 --seed 1 --lora-modules a=/a b=/b")
    assert names(found) == ["prefix_caching", "--enable-lora", "--seed"]
    lora = found.scene.variable("--enable-lora")
    assert lora.parts == ("--enable-lora", "--lora-modules", "--max-loras", "--max-lora-rank")
    assert lora.production == (
        "--enable-lora",
        "--lora-modules",
        "a=/a",
        "b=/b",
        "--max-loras",
        "4",
        "--max-lora-rank",
        "64",
    )


def test_the_parts_of_an_object_that_only_means_something_whole_move_together() -> None:
    found = derived(
        "vllm serve m/x --speculative-config.model d --seed 1 --speculative-config.num_speculative_tokens 3 "
        "-cc.mode none -cc.cudagraph_mode none"
    )
    compiled = ["--compilation-config.mode", "--compilation-config.cudagraph_mode"]
    assert names(found) == ["prefix_caching", "--speculative-config.model", "--seed", *compiled]
    draft = found.scene.variables[1]
    assert draft.parts == ("--speculative-config.model", "--speculative-config.num_speculative_tokens")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (SEEDED, {"input_tokens": (128, 3000), "max_tokens": (16, 512), "concurrency": (1, 8)}),
        (Asked(input_tokens=100, max_tokens=10, concurrency=1), {"input_tokens": (50, 100), "max_tokens": (5, 10)}),
        (Asked(input_tokens=20, max_tokens=1), {}),
        (Asked(input_tokens=129, max_tokens=17), {"input_tokens": (128, 129), "max_tokens": (16, 17)}),
    ],
)
def test_request_values_have_their_minimal_ends_below_production(
    asked: Asked, expected: dict[str, tuple[int, int]]
) -> None:
    found = derived("vllm serve m/x", asked=asked)
    seen = {v.name: (v.minimal, v.production) for v in found.scene.variables if v.kind is Kind.REQUEST}
    assert seen == expected
    assert all(v.ordinal for v in found.scene.variables if v.kind is Kind.REQUEST)
    shape = found.scene.shape(found.scene.production_configuration)
    assert (shape.input_tokens, shape.max_tokens, shape.concurrency) == (
        *(asked.input_tokens, asked.max_tokens, asked.concurrency),
    )


BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 900,
    "stream": True,
    "reasoning_effort": "high",
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"default": None}}}],
}
PARSER = "--enable-auto-tool-choice --tool-call-parser hermes"


def test_productions_own_request_gives_its_values_and_keeps_its_prompt() -> None:
    request = Request.of("/v1/chat/completions", BODY)
    found = derived(f"vllm serve m/x {PARSER}", asked=Asked(request=request))
    # Tools come after the parser without which every request with tools is refused.
    assert names(found) == [
        *("max_tokens", "stream", "reasoning_effort", "prefix_caching", "--tool-call-parser", "tool_calls"),
    ]
    assert any("--input-tokens" in note for note in found.notes)
    low = found.scene.shape(found.scene.minimal_configuration)
    assert (low.input_tokens, low.max_tokens, low.stream, low.tools_json) == (None, 16, False, None)
    high = found.scene.shape(found.scene.production_configuration)
    assert (high.max_tokens, high.stream, high.reasoning_effort) == (900, True, "high")
    assert json.loads(high.tools_json or "") == BODY["tools"]


def test_without_a_parser_flag_tools_are_tried_with_the_other_request_values() -> None:
    found = derived("vllm serve m/x --seed 1", asked=Asked(input_tokens=3000, max_tokens=20, tools_json='[{"a": 1}]'))
    assert names(found) == ["input_tokens", "max_tokens", "tool_calls", "prefix_caching", "--seed"]


def test_numbers_have_a_threshold_only_where_both_ends_have_one() -> None:
    text = find_recipe("generic").model_dump(by_alias=True)
    text["required"]["flags"] = {"--max-model-len": 4096, "--seed": 1}
    found = derived("vllm serve m/x --max-model-len 32k --max-num-seqs 64 --seed 3", Recipe.model_validate(text))
    length = found.scene.variable("--max-model-len")
    assert (length.minimal, length.production, length.ordinal) == (4096, 32000, True)
    assert not found.scene.variable("--max-num-seqs").ordinal
    # More of a seed means nothing.
    assert not found.scene.variable("--seed").ordinal
    half = found.scene.minimal_configuration.with_value("--max-model-len", 16000)
    assert found.scene.launch(half).command.flag("--max-model-len") == "16000"
    assert found.scene.launch(found.scene.production_configuration).command.flag("--max-model-len") == "32k"


POOL = [
    *("--enforce-eager", "--kv-cache-dtype fp8", "--gpu-memory-utilization=0.9", "-cc.mode none", "-tp 2", "--seed 5"),
    *(
        "--enable-auto-tool-choice",
        "--tool-call-parser hermes",
        "--enable-lora",
        "--max-loras 4",
        "--no-async-scheduling",
    ),
    *(
        "--trust-remote-code",
        "--some-new-flag 3",
        "--port 80",
        "--enable-prefix-caching",
        "--middleware a --middleware b",
    ),
    *(
        """--attention-config '{"backend": "X"}'""",
        "--max-num-seqs 64",
        "--nnodes 2",
        "--headless",
        "--model-impl auto",
    ),
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(POOL), unique=True), st.sampled_from(["generic", "kimi-k3-b300", "cpu-demo"]))
def test_whatever_production_is_its_variables_lead_from_one_end_to_the_other(flags: list[str], recipe: str) -> None:
    scene = derived(f"A=1 vllm serve m/x {' '.join(flags)}", recipe, SEEDED).scene
    assert scene.launch(scene.production_configuration).command.argv() == scene.production.argv()
    assert difference(scene.launch(scene.minimal_configuration).command, scene.minimal) == ()
    at = scene.minimal_configuration
    for variable in scene.variables:
        after = at.with_value(variable.name, variable.production)
        changed = {d.name for d in difference(scene.launch(at).command, scene.launch(after).command)}
        assert changed == set(variable.parts)
        at = after
    assert at == scene.production_configuration


def test_with_nothing_said_about_requests_the_recipes_own_is_sent_on_both_ends() -> None:
    found = derived("vllm serve moonshotai/Kimi-K3 --served-model-name k3 --seed 1", "kimi-k3-b300", Asked())
    assert {found.scene.variable(name).kind for name in names(found)} == {Kind.LAUNCH}
    low, high = (found.scene.shape(end) for end in ends(found))
    assert low == high
    assert low.base is not None
    assert low.base.body["model"] == "k3"
    assert low.max_tokens == 256
    assert any("the recipe's own request" in note for note in found.notes)


def test_with_nothing_said_and_no_request_in_the_recipe_seeded_text_is_sent_on_both_ends() -> None:
    found = derived("vllm serve m/x --seed 1", "generic", Asked(concurrency=2))
    assert names(found) == ["concurrency", "prefix_caching", "--seed"]
    for shape in (found.scene.shape(end) for end in ends(found)):
        assert (shape.base, shape.input_tokens, shape.max_tokens) == (None, 128, 16)
    assert any("128 tokens of seeded text" in note for note in found.notes)


def test_a_limit_alone_varies_below_itself() -> None:
    found = derived("vllm serve m/x", "generic", Asked(max_tokens=10))
    assert [(v.name, v.minimal, v.production) for v in found.scene.variables[:1]] == [("max_tokens", 5, 10)]


def ends(found: Derived) -> tuple[Configuration, Configuration]:
    return found.scene.minimal_configuration, found.scene.production_configuration


def test_doubts_about_the_command_are_told() -> None:
    found = derived("vllm serve m/x --no-such-thing 3")
    assert any("--no-such-thing" in note or "--such-thing" in note for note in found.notes)


def test_certificates_are_a_variable_and_not_where_it_listens() -> None:
    """A missing TLS file is a real cause: taken off both ends it could not be found."""
    derived = derive(
        parse("vllm serve m --ssl-certfile /c.pem --ssl-keyfile /k.pem"), find_recipe("generic"), Asked(), name="s"
    )
    assert "--ssl-certfile" in [v.name for v in derived.scene.variables]
    assert derived.scene.production.flag("--ssl-keyfile") == "/k.pem"
    assert derived.scene.minimal.flag("--ssl-keyfile") is None
