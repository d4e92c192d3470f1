"""A scenario file becomes a scene, or an error that says which line to mend and how."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from repro.domain.request import COMPLETIONS, Expectation
from repro.domain.scene import Scene
from repro.errors import InvalidFile
from repro.recipe.assemble import load_scenario
from repro.recipe.write import from_scene

GOOD = """\
schema = "repro/scenario"
version = 1
name = "x"

[minimal]
command = "vllm serve m -tp 2"

[production]
command = ["NCCL_DEBUG=INFO", "vllm", "serve", "m", "-tp", "2", "--kv-cache-dtype", "fp8", "--port", "80"]
input_tokens = 300

[[variable]]
name = "input_tokens"

[[variable]]
name = "--kv-cache-dtype"

[[variable]]
name = "env:NCCL_DEBUG"
"""


def load(tmp_path: Path, text: str) -> Scene:
    path = tmp_path / "s.toml"
    path.write_text(text)
    return load_scenario(path)


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def test_the_two_ends_and_the_order_of_trial(tmp_path: Path) -> None:
    scene = load(tmp_path, GOOD)
    assert [v.name for v in scene.variables] == ["input_tokens", "--kv-cache-dtype", "env:NCCL_DEBUG"]
    # Without a request, the recipe's minimal length and limit hold where an end says nothing.
    assert (scene.variables[0].minimal, scene.variables[0].production) == (128, 300)
    assert scene.shape(scene.minimal_configuration).max_tokens == 16
    # Where production listens is no property of the fault.
    assert scene.production.flag("--port") is None
    assert scene.recipe == "generic"
    assert scene.precision == 0.05


@pytest.mark.parametrize(
    ("old", "new", "line", "what", "mend"),
    [
        (
            '"--kv-cache-dtype"\n\n',
            '"--kv-cache-dtyp"\n\n',
            16,
            "'--kv-cache-dtyp' is on neither end",
            "Did you mean '--kv-ca",
        ),
        (
            'name = "input_tokens"',
            'name = "max_tokens"',
            13,
            "'max_tokens' is 16 on both ends",
            "The ends differ in: input",
        ),
        (
            'name = "--kv-cache-dtype"',
            'name = "-tp"',
            16,
            "'--tensor-parallel-size' is '2' on both ends",
            "The ends differ",
        ),
        ('name = "env:NCCL_DEBUG"', 'name = "input_tokens"', 19, "input_tokens is listed twice", "Keep one"),
        (
            '\n[[variable]]\nname = "env:NCCL_DEBUG"\n',
            "",
            9,
            "env:NCCL_DEBUG (minimal: absent; production: 'INFO')",
            "exclude",
        ),
        ("vllm serve m -tp 2", "vllm serve n -tp 2", 9, "the ends differ in the model ('n' and 'm')", "the same model"),
        (
            "vllm serve m -tp 2",
            "numactl -N 0 vllm serve m -tp 2",
            9,
            "the ends differ in the launcher",
            "same launcher",
        ),
        ("vllm serve m -tp 2", "nginx -g x", 6, "minimal.command: ", ""),
        ("vllm serve m -tp 2", "vllm serve m -tp 2 --api-key abc", 6, "--api-key holds a secret", "VLLM_API_KEY"),
        ("vllm serve m -tp 2", "HF_TOKEN=abc vllm serve m -tp 2", 6, "HF_TOKEN is a secret", 'env_from = ["HF_TOKEN"]'),
        ('name = "x"', 'name = "x"\nexclude = ["--seed"]', 4, "'--seed' is no difference", "The ends differ in"),
        (
            'name = "--kv-cache-dtype"',
            'name = "--kv-cache-dtype"\nlevels = [1]',
            17,
            "levels need a whole number",
            "Change",
        ),
        (
            'name = "input_tokens"',
            'name = "input_tokens"\ncouple = ["--seed"]',
            14,
            "a request value moves alone",
            "Take",
        ),
        (
            "input_tokens = 300",
            "input_tokens = 128",
            13,
            "'input_tokens' is 128 on both ends",
            "The ends differ in: --kv",
        ),
        (
            "[[variable]]",
            '[request]\nfile = "none.json"\n[[variable]]',
            13,
            "none.json: cannot be read",
            "Check the path",
        ),
        ("[[variable]]", "[request]\nbody_json = '[1]'\n[[variable]]", 13, "no JSON object", '"messages"'),
        ("[[variable]]", "[request]\nbody_json = '{'\n[[variable]]", 13, "not valid JSON", "json.tool"),
        ("[[variable]]", "[request]\ntools_json = '[]'\n[[variable]]", 13, "no JSON list of tool", '"function"'),
        (
            "[[variable]]",
            "[request]\nbody = { a = 2026-01-01 }\n[[variable]]",
            13,
            "cannot be sent as JSON",
            "in quotes",
        ),
        ("[[variable]]", "[request.expect]\nstatus = 20\n[[variable]]", 13, "request.expect.status", ""),
        ("[minimal]", '[environment]\nenv = { HF_TOKEN = "a" }\n[minimal]', 6, "HF_TOKEN is a secret", "env_from"),
    ],
)
def test_a_mistake_is_named_with_line_and_mend(
    tmp_path: Path, old: str, new: str, line: int, what: str, mend: str
) -> None:
    with pytest.raises(InvalidFile) as caught:
        load(tmp_path, changed(old, new))
    assert caught.value.message.startswith(f"{tmp_path / 's.toml'}:{line}: ")
    assert what in caught.value.message
    assert mend in caught.value.hint
    assert caught.value.exit_code == 2


def test_no_variable_at_all_is_answered_with_the_lines_to_add(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"no \[\[variable\]\] is listed") as caught:
        load(tmp_path, GOOD.split("[[variable]]")[0])
    for name in ("input_tokens", "--kv-cache-dtype", "env:NCCL_DEBUG"):
        assert f'[[variable]] name = "{name}"' in caught.value.hint


def test_equal_ends_leave_nothing_to_search(tmp_path: Path) -> None:
    head = GOOD.split("[production]")[0]
    with pytest.raises(InvalidFile, match="both ends are equal"):
        load(tmp_path, head + '[production]\ncommand = "vllm serve m -tp 2"\n')


def test_an_excluded_difference_is_productions_on_both_ends(tmp_path: Path) -> None:
    text = changed('name = "x"', 'name = "x"\nexclude = ["--kv-cache-dtype", "max_tokens"]')
    text = text.replace("input_tokens = 300", "input_tokens = 300\nmax_tokens = 99")
    text = text.replace('[[variable]]\nname = "--kv-cache-dtype"\n', "")
    scene = load(tmp_path, text)
    assert scene.minimal.flag("--kv-cache-dtype") == "fp8"
    assert scene.shape(scene.minimal_configuration).max_tokens == 99
    assert [v.name for v in scene.variables] == ["input_tokens", "env:NCCL_DEBUG"]


def test_levels_and_couples(tmp_path: Path) -> None:
    text = """\
schema = "repro/scenario"
version = 1
name = "x"
[minimal]
command = "vllm serve m --max-num-seqs 8"
[production]
command = "vllm serve m --max-num-seqs 64 --enable-auto-tool-choice --tool-call-parser hermes --nnodes 2"
[[variable]]
name = "max_num_seqs"
levels = [16, 32]
[[variable]]
name = "--tool-call-parser"
couple = ["--enable-auto-tool-choice"]
[[variable]]
name = "nodes"
"""
    scene = load(tmp_path, text.replace('"max_num_seqs"', '"--max_num_seqs"'))
    levels, parser, nodes = scene.variables
    assert (levels.name, levels.levels, levels.ordinal) == ("--max-num-seqs", (16, 32), True)
    assert parser.parts == ("--tool-call-parser", "--enable-auto-tool-choice")
    assert (nodes.name, nodes.parts) == ("nodes", ("--nnodes",))


@pytest.mark.parametrize("levels", ["[1, 200]", "[200, 300]"])
def test_levels_lie_between_the_ends(tmp_path: Path, levels: str) -> None:
    with pytest.raises(InvalidFile, match=r":14: variable\[1\].levels: .* does not lie between the ends, 128 and 300"):
        load(tmp_path, changed('name = "input_tokens"', f'name = "input_tokens"\nlevels = {levels}'))


def test_several_flags_are_excluded_by_the_variables_name(tmp_path: Path) -> None:
    text = changed('name = "x"', 'name = "x"\nexclude = ["nodes", "prefix_caching"]')
    text = text.replace('"--port", "80"', '"--nnodes", "2", "--node-rank", "1", "--enable-prefix-caching"')
    scene = load(tmp_path, text.replace("vllm serve m -tp 2", "vllm serve m -tp 2 --no-enable-prefix-caching"))
    assert scene.minimal.flag("--node-rank") == "1"
    assert scene.minimal.flag("--enable-prefix-caching") is True


def test_an_unknown_recipe_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"s\.toml:4: recipe: no recipe is called 'generi'") as caught:
        load(tmp_path, changed('name = "x"', 'name = "x"\nrecipe = "generi"'))
    assert "Did you mean generic?" in caught.value.hint


def test_a_mask_in_a_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r":6: minimal\.command: a masked secret"):
        load(tmp_path, changed("vllm serve m -tp 2", "vllm serve m -tp 2 --x ***masked:hf_token:1***"))


def test_prefix_caching_is_written_out_on_the_end_that_does_not_say_it(tmp_path: Path) -> None:
    text = changed("vllm serve m -tp 2", "vllm serve m -tp 2 --no-enable-prefix-caching")
    scene = load(tmp_path, text + '[[variable]]\nname = "prefix_caching"\n')
    assert scene.production.flag("--enable-prefix-caching") is True
    assert scene.variables[-1].parts == ("--enable-prefix-caching",)


def test_a_request_beside_the_scenario_with_tools_and_expectation(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"prompt": "p", "max_tokens": 300, "stream": True}))
    (tmp_path / "t.json").write_text(json.dumps({"tools": [{"type": "function"}]}))
    request = (
        '[request]\npath = "/v1/completions"\nfile = "r.json"\ntools_file = "t.json"\n'
        '[request.expect]\ntool_call = true\nfinish_reasons = ["stop"]\ndeadline_s = 5\n'
    )
    text = changed("input_tokens = 300", "").replace('[[variable]]\nname = "input_tokens"', request)
    text = text.replace("[production]", "stream = false\ntool_calls = false\nmax_tokens = 16\n\n[production]")
    text += "".join(f'[[variable]]\nname = "{name}"\n' for name in ("max_tokens", "stream", "tool_calls"))
    scene = load(tmp_path, text)
    assert scene.expectation == Expectation(tool_call=True, finish_reasons=("stop",), deadline_s=5)
    high = scene.shape(scene.production_configuration)
    assert (high.path, high.max_tokens, high.stream, high.tools_json) == (
        *(COMPLETIONS, 300, True, '[{"type": "function"}]'),
    )
    assert high.input_tokens is None
    low = scene.shape(scene.minimal_configuration)
    assert (low.max_tokens, low.stream, low.tools_json) == (16, False, None)


def test_with_a_request_the_length_is_said_on_both_ends_or_on_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r":5: minimal: input_tokens is missing"):
        load(tmp_path, changed("[[variable]]", "[request]\nbody = { prompt = 'p' }\n[[variable]]"))


def test_placeholders_stand_for_this_python_and_the_scenarios_folder(tmp_path: Path) -> None:
    text = changed("vllm serve m -tp 2", "{python} -m vllm.entrypoints.cli.main serve m -tp 2")
    text = text.replace(
        '"NCCL_DEBUG=INFO", "vllm", "serve",',
        '"NCCL_DEBUG={here}/f", "{python}", "-m", "vllm.entrypoints.cli.main", "serve",',
    )
    scene = load(tmp_path, text.replace("[minimal]", '[environment]\nenv = { F = "{here}/f" }\n[minimal]'))
    assert scene.production.program[0] == sys.executable
    assert scene.production.environment == (("NCCL_DEBUG", f"{tmp_path}/f"),)
    assert scene.environment == (("F", f"{tmp_path}/f"),)


def test_a_recipe_of_ones_own_lies_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        'schema = "repro/recipe"\nversion = 1\nname = "own"\ntitle = "O"\nfits_one_node = true\n'
        "[minimal_request]\ninput_tokens = 9\n"
    )
    scene = load(tmp_path, changed('name = "x"', 'name = "x"\nrecipe = "own.toml"'))
    assert scene.recipe == str(tmp_path / "own.toml")
    # A session's copy lies elsewhere and still finds it.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "again.toml").write_text(from_scene(scene))
    assert load_scenario(elsewhere / "again.toml") == scene
    assert 'recipe = "own.toml"' in from_scene(scene, recipe_file="own.toml")
    assert scene.variables[0].minimal == 9
