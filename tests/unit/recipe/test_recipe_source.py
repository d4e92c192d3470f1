"""Errors in files that users write point at the line to mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.errors import InvalidFile
from repro.recipe.load import checked
from repro.recipe.scenario import Scenario
from repro.recipe.source import Source, spelled

GOOD = """\
schema = "repro/scenario"
version = 1
name = "x"

[minimal]
command = "vllm serve m"

[production]
command = "vllm serve m --enforce-eager"
input_tokens = 300

[[variable]]
name = "input_tokens"

[[variable]]
name = "--enforce-eager"
"""


def test_the_sample_itself_is_good() -> None:
    assert checked(Source("s.toml", GOOD), Scenario).production.input_tokens == 300


@pytest.mark.parametrize(
    ("old", "new", "message", "mend"),
    [
        ("input_tokens = 300", 'input_tokens = "300"', "s.toml:10: production.input_tokens: ", "a number"),
        (
            "input_tokens = 300",
            "input_token = 300",
            "s.toml:10: production.input_token: ",
            "Did you mean 'input_tokens'",
        ),
        ("input_tokens = 300", "input_tokens = 0", "s.toml:10: production.input_tokens: ", "Prompt length"),
        ("version = 1", "version = 2", "s.toml:2: version: ", ""),
        ("version = 1\n", "", "s.toml: the key 'version' is missing", "Add it"),
        ('command = "vllm serve m"\n', "", "s.toml:5: minimal: the key 'command' is missing", "list of arguments"),
        ('command = "vllm serve m"', 'command = ["vllm", 3]', "s.toml:6: minimal.command[2]: ", ""),
        ('command = "vllm serve m"', "command = 5", "s.toml:6: minimal.command: ", "list of arguments"),
        (
            'name = "--enforce-eager"',
            'name = "--enforce-eager"\nlevel = [3]',
            "s.toml:17: variable[2].level: ",
            "'levels'",
        ),
        (
            'name = "--enforce-eager"',
            'name = "--enforce-eager"\nlevels = [3.5]',
            "s.toml:17: variable[2].levels[1]: ",
            "",
        ),
        (
            "[[variable]]",
            '[request]\nbody = { a = 1 }\nfile = "b"\n[[variable]]',
            "s.toml:12: request: body and file",
            "",
        ),
    ],
)
def test_a_wrong_value_is_named_with_line_key_and_mend(old: str, new: str, message: str, mend: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        checked(Source("s.toml", GOOD.replace(old, new, 1)), Scenario)
    assert caught.value.message.startswith(message)
    assert mend in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("old", "new", "place", "mend"),
    [
        ('name = "x"', "name = x", "s.toml:3:8: not valid TOML", "quotes"),
        ('name = "x"', 'name = "x', "s.toml:3:10: not valid TOML", "quotes"),
        ("version = 1", "version = 1\nversion = 1", "s.toml:3: this key or table is there twice", "Keep one"),
        ("[production]", "[minimal]", "s.toml:8: this key or table is there twice", "Keep one"),
        ('name = "--enforce-eager"', 'name = """x', "s.toml:16: not valid TOML", "not closed"),
    ],
)
def test_a_syntax_error_is_named_with_line_and_column(old: str, new: str, place: str, mend: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        Source("s.toml", GOOD.replace(old, new, 1)).parse()
    assert caught.value.message.startswith(place)
    assert mend in caught.value.hint


def test_a_wrong_value_is_not_repeated_because_it_may_be_a_secret() -> None:
    with pytest.raises(InvalidFile) as caught:
        checked(Source("s.toml", GOOD.replace("input_tokens = 300", 'input_tokens = "hf_secretsecret"')), Scenario)
    assert "secretsecret" not in caught.value.message + caught.value.hint


def test_lines_follow_tables_lists_and_quoted_keys() -> None:
    text = '[a]\nb = 1\n"c.d" = 2\n[[v]]\nname = 1\n[[v]]\nname = 2\n[v.deep]\nx = 3\n[e."f g"]\nh = { i = 1 }\n'
    source = Source("s.toml", text)
    assert source.line_of(("a", "b")) == 2
    assert source.line_of(("a", "c.d")) == 3
    assert source.line_of(("v", 1, "name")) == 7
    assert source.line_of(("v", 1, "deep", "x")) == 9
    assert source.line_of(("e", "f g", "h", "i")) == 11
    assert source.line_of(("nowhere",)) is None
    assert source.line_of(()) is None


def test_paths_are_spelled_with_positions_from_one() -> None:
    assert spelled(("variable", 1, "levels", 0)) == "variable[2].levels[1]"


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="cannot be read"):
        Source.read(tmp_path / "none.toml")
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'name = "\xe9"')
    with pytest.raises(InvalidFile, match="not UTF-8"):
        Source.read(latin)
