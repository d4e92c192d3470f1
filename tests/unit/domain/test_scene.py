"""A scene turns configurations into commands and requests without ever inventing or losing a setting."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.domain.command import Command, difference, parse
from repro.domain.request import COMPLETIONS, Expectation, Request
from repro.domain.scene import Scene, part_value
from repro.domain.variable import Configuration, Kind, Value, Variable

PLAIN: dict[str, tuple[Value, ...]] = {
    "--kv-cache-dtype": ("fp8", "auto"),
    "--gpu-memory-utilization": ("0.9", "0.95"),
    "--dtype": ("float16", "bfloat16"),
    "--attention-config": ('{"backend": "A"}', '{"backend": "B"}'),
    "--enforce-eager": (True, False),
    "--enable-prefix-caching": (True, False),
    "--an-unknown-flag": ("1", "x y"),
    "env:NCCL_P2P_DISABLE": ("0", "1"),
    "env:OMP_NUM_THREADS": ("4", "8"),
}
ORDINAL = ("--max-model-len", "--max-num-seqs")


def words_of(part: str, value: Value) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return [part if value else f"--no-{part[2:]}"]
    if part.startswith("env:"):
        return [f"{part[4:]}={value}"]
    return [part, str(value)]


def command_of(values: dict[str, Value]) -> Command:
    pairs = [w for p, v in values.items() if p.startswith("env:") for w in words_of(p, v)]
    flags = [w for p, v in values.items() if p.startswith("--") for w in words_of(p, v)]
    return parse([*pairs, "vllm", "serve", "m/x", *flags])


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Two ends over the parts above, in different orders, and a variable for each difference."""
    ends: tuple[dict[str, Value], dict[str, Value]] = ({}, {})
    variables: list[Variable] = []
    for part in draw(st.permutations([*PLAIN, *ORDINAL])):
        low: Value
        high: Value
        if part in ORDINAL:
            low = draw(st.none() | st.integers(1, 5000))
            high = draw(st.none() | st.integers(1, 5000))
        else:
            values: list[Value] = [None, *PLAIN[part]]
            low, high = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        ends[0][part], ends[1][part] = low, high
        if low == high:
            continue
        if isinstance(low, int) and isinstance(high, int) and not isinstance(low, bool) and low < high:
            variables.append(Variable(part, Kind.LAUNCH, low, high, ordinal=True, parts=(part,)))
        else:
            texts = [str(v) if part in ORDINAL and v is not None else v for v in (low, high)]
            variables.append(Variable(part, Kind.LAUNCH, texts[0], texts[1], parts=(part,)))
    shuffled = dict(draw(st.permutations(list(ends[0].items()))))
    order = tuple(draw(st.permutations(variables)))
    return Scene("s", order, minimal=command_of(shuffled), production=command_of(ends[1]))


@settings(deadline=None)
@given(scenes())
def test_both_ends_are_launched_as_they_were_given(scene: Scene) -> None:
    production = scene.launch(scene.production_configuration).command
    assert production == scene.production
    assert production.argv() == scene.production.argv()
    minimal = scene.launch(scene.minimal_configuration).command
    assert difference(minimal, scene.minimal) == ()
    assert sorted(minimal.argv()) == sorted(scene.minimal.argv())


@settings(deadline=None)
@given(scenes(), st.data())
def test_changing_one_variable_changes_exactly_its_parts(scene: Scene, data: st.DataObject) -> None:
    if not scene.variables:
        return
    sides = {v.name: data.draw(st.sampled_from([v.minimal, v.production])) for v in scene.variables}
    changed = data.draw(st.sampled_from(scene.variables))
    before = Configuration.of(sides)
    other: Value = changed.production if sides[changed.name] == changed.minimal else changed.minimal
    if changed.ordinal:
        assert isinstance(changed.minimal, int)
        assert isinstance(changed.production, int)
        other = data.draw(st.integers(changed.minimal, changed.production).filter(lambda n: n != sides[changed.name]))
    after = before.with_value(changed.name, other)
    left, right = scene.launch(before).command, scene.launch(after).command
    assert {d.name for d in difference(left, right)} == set(changed.parts)
    if changed.ordinal:
        assert part_value(right, changed.name) == str(other)


def coupled_scene(**more: object) -> Scene:
    parts = ("--tool-call-parser", "--enable-auto-tool-choice")
    arguments = ("--tool-call-parser", "hermes", "--enable-auto-tool-choice")
    settings: dict[str, object] = {
        "name": "s",
        "variables": (Variable("--tool-call-parser", Kind.LAUNCH, None, arguments, parts=parts),),
        "minimal": parse("vllm serve m/x -tp 2"),
        "production": parse("vllm serve m/x --enable-auto-tool-choice -tp 2 --tool-call-parser hermes"),
        **more,
    }
    return Scene(**settings)  # type: ignore[arg-type]


def test_coupled_parts_move_together_and_keep_productions_order() -> None:
    scene = coupled_scene(environment=(("A", "1"),), environment_from=("HF_TOKEN",))
    assert scene.launch(scene.minimal_configuration).command.shell() == "vllm serve m/x -tp 2"
    launch = scene.launch(scene.production_configuration)
    assert launch.command.shell() == "vllm serve m/x --enable-auto-tool-choice -tp 2 --tool-call-parser hermes"
    assert launch.environment == (("A", "1"),)
    assert launch.environment_from == ("HF_TOKEN",)


def test_a_difference_that_belongs_to_no_variable_is_refused() -> None:
    with pytest.raises(ValueError, match="--enforce-eager"):
        coupled_scene(minimal=parse("vllm serve m/x -tp 2 --enforce-eager"))
    with pytest.raises(ValueError, match="model"):
        coupled_scene(minimal=parse("vllm serve m/y -tp 2"))


def test_a_value_that_is_of_neither_end_is_refused() -> None:
    scene = coupled_scene()
    with pytest.raises(ValueError, match="neither of its ends"):
        scene.launch(Configuration.of({"--tool-call-parser": "kimi_k3"}))
    flag = Variable("--enforce-eager", Kind.LAUNCH, None, True, parts=("--enforce-eager",))
    eager = Scene("s", (flag,), parse("vllm serve m"), parse("vllm serve m --enforce-eager"))
    with pytest.raises(ValueError, match="1 is neither"):
        eager.launch(Configuration.of({"--enforce-eager": 1}))


def test_names_are_unique_and_request_values_known() -> None:
    length = Variable("input_tokens", Kind.REQUEST, 8, 300, ordinal=True)
    same = parse("vllm serve m")
    with pytest.raises(ValueError, match="twice"):
        Scene("s", (length, length), same, same)
    with pytest.raises(ValueError, match="input_token: no request value"):
        Scene("s", (Variable("input_token", Kind.REQUEST, 8, 300),), same, same)
    scene = Scene("s", (length,), same, same)
    assert scene.variable("input_tokens") is length
    with pytest.raises(KeyError):
        scene.variable("max_tokens")


BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "hello"}],
    "max_completion_tokens": 900,
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "tool_choice": "auto",
    "reasoning_effort": "high",
    "temperature": 0.6,
}
REQUEST_VARIABLES = (
    Variable("input_tokens", Kind.REQUEST, 128, 3000, ordinal=True),
    Variable("max_tokens", Kind.REQUEST, 16, 900, ordinal=True),
    Variable("stream", Kind.REQUEST, False, True),
    Variable("tool_calls", Kind.REQUEST, False, True),
    Variable("reasoning_effort", Kind.REQUEST, None, "high"),
)


def test_a_shape_says_what_the_configuration_says_and_nothing_of_the_body_contradicts_it() -> None:
    same = parse("vllm serve m")
    scene = Scene(
        "s",
        REQUEST_VARIABLES,
        same,
        same,
        request=Request.of(COMPLETIONS, BODY),
        fixed_request=(("concurrency", 4), ("shared_prefix", True)),
        expectation=Expectation(tool_call=True, deadline_s=5),
        seed=7,
    )
    low, high = scene.shape(scene.minimal_configuration), scene.shape(scene.production_configuration)
    assert (low.input_tokens, low.max_tokens, low.stream, low.reasoning_effort) == (128, 16, False, None)
    assert (high.input_tokens, high.max_tokens, high.stream, high.reasoning_effort) == (3000, 900, True, "high")
    assert low.concurrency == high.concurrency == 4
    assert low.shared_prefix
    assert low.path == COMPLETIONS
    assert low.seed == 7
    assert low.base is not None
    assert high.base is not None
    assert set(low.base.body) == {"model", "messages", "temperature"}
    assert set(high.base.body) == {"model", "messages", "temperature", "stream_options", "tool_choice"}
    assert low.tools_json is None
    assert json.loads(high.tools_json or "null") == BODY["tools"]
    # An answer without tools cannot be expected to call one.
    assert not low.expectation.tool_call
    assert high.expectation.tool_call
    assert low.expectation.deadline_s == 5


def test_without_a_request_seeded_text_is_asked_for() -> None:
    same = parse("vllm serve m")
    scene = Scene("s", REQUEST_VARIABLES[:1], same, same, path=COMPLETIONS, tools_json='[{"a": 1}]')
    shape = scene.shape(scene.minimal_configuration)
    assert shape.base is None
    assert shape.path == COMPLETIONS
    assert shape.concurrency == 1
    assert shape.tools_json is None
