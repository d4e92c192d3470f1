"""What is written is valid, is read back as the same scene, and holds no secret."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.domain.command import parse
from repro.domain.request import COMPLETIONS, Expectation, Request
from repro.domain.scene import Scene, canonical_json
from repro.errors import UsageError
from repro.recipe.asked import Asked
from repro.recipe.assemble import to_scene
from repro.recipe.find import data_folder, find_recipe, recipe_names
from repro.recipe.load import checked
from repro.recipe.minimal import Captured, derive
from repro.recipe.scenario import Scenario
from repro.recipe.schema import json_schema
from repro.recipe.source import Source
from repro.recipe.write import from_scene

FLAGS = [
    *("--enforce-eager", "--kv-cache-dtype fp8", "--gpu-memory-utilization=0.9", "-cc.mode none", "-tp 2", "--seed 5"),
    *(
        "--enable-auto-tool-choice",
        "--tool-call-parser hermes",
        "--enable-lora",
        "--max-loras 4",
        "--no-async-scheduling",
    ),
    *("--some-new-flag 'a \"b\" c'", "--no-enable-prefix-caching", "--nnodes 2", """--attention-config '{"b": "X"}'"""),
    *("--middleware a --middleware b", "--lora-modules a=/a b=/b", "--max-model-len 32k"),
]
STARTS = [
    "vllm serve m/x",
    "A=1 B='x y' vllm serve m/x",
    "numactl -N 0 vllm serve m/x",
    "docker run -e A=1 vllm/vllm-openai:v0 m/x",
]
TEXT = st.text(max_size=20).filter(lambda text: "{here}" not in text and "{python}" not in text)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": None}}]


@st.composite
def derived_scenes(draw: st.DrawFn) -> Scene:
    body: dict[str, Any] | None = None
    if draw(st.booleans()):
        body = {"messages": [{"role": "user", "content": draw(TEXT)}], "extra": draw(JSON)}
        body |= draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "max_tokens": st.integers(1, 900),
                    "stream": st.booleans(),
                    "reasoning_effort": st.sampled_from(["low", "high"]),
                    "tools": st.just(TOOLS),
                },
            )
        )
    number = st.none() | st.integers(1, 5000)
    asked = Asked(
        request=None
        if body is None
        else Request.of(draw(st.sampled_from([COMPLETIONS, "/v1/chat/completions"])), body),
        input_tokens=draw(number),
        max_tokens=draw(number),
        concurrency=draw(st.integers(1, 9)),
        stream=draw(st.none() | st.booleans()),
        reasoning_effort=draw(st.sampled_from([None, "", "low"])),
        tools_json=canonical_json(TOOLS) if body is None and draw(st.booleans()) else None,
        shared_prefix=draw(st.booleans()),
    )
    line = " ".join([draw(st.sampled_from(STARTS)), *draw(st.lists(st.sampled_from(FLAGS), unique=True))])
    expectation = Expectation(status=draw(st.sampled_from([200, 400])), finish_reasons=("stop",), deadline_s=9.5)
    return derive(
        parse(line),
        find_recipe(draw(st.sampled_from(recipe_names()))),
        asked,
        name=draw(TEXT.filter(bool)),
        captured=Captured({"NCCL_DEBUG": draw(TEXT)}, ("HF_TOKEN",)),
        expectation=expectation,
        precision=draw(st.sampled_from([0.0, 0.05])),
        seed=draw(st.integers(0, 9)),
    ).scene


def read(text: str) -> Scene:
    source = Source("s.toml", text)
    scenario = checked(source, Scenario)
    jsonschema.validate(source.parse(), json_schema("scenario"))
    return to_scene(scenario, source, find_recipe(scenario.recipe))


@settings(deadline=None)
@given(derived_scenes())
def test_a_scene_is_read_back_as_it_was_written(scene: Scene) -> None:
    if not scene.variables:
        return
    assert read(from_scene(scene)) == scene


def sample() -> Scene:
    return derive(
        parse("NCCL_DEBUG=INFO vllm serve m/x -tp 2 --enable-auto-tool-choice --tool-call-parser hermes"),
        find_recipe("generic"),
        Asked(input_tokens=300, max_tokens=99, tools_json=canonical_json(TOOLS)),
        name="x",
    ).scene


def test_it_reads_well() -> None:
    text = from_scene(sample(), notes=["a note " * 30])
    assert '  "vllm", "serve", "m/x",\n  "-tp", "2",\n  "--no-enable-prefix-caching",\n' in text
    assert (
        "# minimal: absent; production: --tool-call-parser hermes --enable-auto-tool-choice\n"
        'name = "--tool-call-parser"' in text
    )
    assert '# minimal: 128; production: 300\nname = "input_tokens"' in text
    assert "# Note: a note a note" in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_what_would_break_a_comment_does_not_get_into_one() -> None:
    odd = "a\nb\x07" + "c " * 100
    scene = derive(
        parse(["vllm", "serve", "m/x", "--chat-template", odd]),
        find_recipe("generic"),
        Asked(input_tokens=300),
        name="two\nlines",
    ).scene
    text = from_scene(scene, notes=["first\nsecond"])
    assert read(text) == scene
    assert "# minimal: absent; production: a b c c" in text
    assert max(len(line) for line in text.splitlines() if line.startswith("#")) <= 120


def test_a_request_may_lie_beside_the_file() -> None:
    scene = replace(sample(), request=Request.of("/v1/chat/completions", {"messages": []}), tools_json=None)
    text = from_scene(scene, request_file="request.json")
    assert 'file = "request.json"' in text
    assert "messages" not in text


def test_no_secret_is_written_even_where_one_was_left_in() -> None:
    secret = "hf_abcdefghijklmnopqrstuvwxyz0123456789"
    scene = sample()
    held = scene.production.with_environment("SOME_NAME", secret).with_flag("--download-dir", f"/{secret}")
    scene = replace(
        scene,
        production=held,
        minimal=scene.minimal.with_environment("SOME_NAME", secret).with_flag("--download-dir", f"/{secret}"),
        environment=(("PLAIN", secret),),
        request=Request.of("/v1/chat/completions", {"messages": [], "api_key": secret}),
        tools_json=canonical_json([{"note": secret}]),
    )
    text = from_scene(scene, notes=[f"seen {secret}"])
    assert secret not in text
    assert "masked" in text


@pytest.mark.parametrize("name", recipe_names())
def test_the_shipped_baselines_follow_the_published_schema(name: str) -> None:
    document = Source.read(data_folder("baselines") / f"{name}.toml").parse()
    if "origin" in document:
        document["origin"]["read"] = document["origin"]["read"].isoformat()
    jsonschema.validate(document, json_schema("recipe"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "nmae": "x"}, json_schema("recipe"))


def test_schemas_are_by_kind() -> None:
    assert json_schema("scenario")["title"] == "repro scenario"
    with pytest.raises(UsageError, match="no schema called 'x'"):
        json_schema("x")
