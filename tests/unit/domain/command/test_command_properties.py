"""What must hold for every command: nothing is lost on the way out and back, and a change is exactly one difference."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from repro.domain.command import Command, FlagKind, FlagSpec, FlagValue, difference, parse
from repro.domain.command.flag import looks_like_flag
from repro.domain.command.flag_table import CURRENT
from repro.domain.command.flag_table_old import OLD

SPECS = [spec for spec in (*CURRENT, *OLD) if spec.name != "--model"]
TEXTS = st.one_of(
    st.sampled_from(
        [
            "8",
            "32k",
            "auto",
            "0.95",
            "-1",
            "-x",
            "--x",
            "a=b",
            "/모델/키미 K3",
            "it's",
            'q"q',
            "$HOME",
            "a;b",
            "#",
            "\\",
        ]
    ),
    st.text(st.characters(blacklist_characters="\x00\r", blacklist_categories=["Cs"])),
).filter(lambda t: t.lower() not in ("true", "false"))
PLAIN = TEXTS.filter(lambda t: not looks_like_flag(t) and t not in ("", "--"))
OBJECTS = st.dictionaries(
    st.sampled_from(["mode", "level", "pass_config"]), st.one_of(st.integers(0, 9), st.booleans(), TEXTS), min_size=1
)
NAMES = st.sampled_from(["VLLM_USE_V2_MODEL_RUNNER", "NCCL_DEBUG", "A", "_b"])
PROGRAMS = st.sampled_from(
    [("vllm", "serve"), ("/opt/bin/vllm", "serve"), ("python3", "-m", "vllm.entrypoints.openai.api_server")]
)


def values(spec: FlagSpec) -> st.SearchStrategy[FlagValue]:
    match spec.kind:
        case FlagKind.BOOLEAN:
            return st.booleans()
        case FlagKind.SWITCH:
            return st.just(True)
        case FlagKind.OPTIONAL:
            return st.one_of(st.just(True), PLAIN)
        case FlagKind.VALUE:
            return TEXTS.filter(lambda t: t not in ("", "--"))
        case FlagKind.SEVERAL:
            return st.lists(PLAIN, min_size=1, max_size=3).map(tuple)
        case FlagKind.REPEATED:
            return st.lists(PLAIN, min_size=1, max_size=3).map(tuple)
        case FlagKind.JSON:
            return OBJECTS.map(lambda o: json.dumps(o, ensure_ascii=False))


@st.composite
def settings(draw: Callable[..., object]) -> tuple[str, FlagValue]:
    spec = draw(st.sampled_from(SPECS))
    assert isinstance(spec, FlagSpec)
    name = draw(st.sampled_from((spec.name, *spec.aliases, spec.name[2:].replace("-", "_"))))
    value = draw(values(spec))
    assert isinstance(name, str)
    assert value is None or isinstance(value, str | bool | tuple)
    return name, value


@st.composite
def commands(draw: Callable[..., object]) -> Command:
    program = draw(PROGRAMS)
    assert isinstance(program, tuple)
    command = Command(program, str(draw(PLAIN)))
    for name, value in draw(st.lists(settings(), max_size=6)):  # type: ignore[attr-defined]
        command = command.with_flag(name, value)
    for name, value in draw(st.dictionaries(NAMES, TEXTS, max_size=3)).items():  # type: ignore[attr-defined]
        command = command.with_environment(name, value)
    return command


@given(commands())
def test_an_argument_list_is_read_back_as_the_same_command(command: Command) -> None:
    again = parse(command.argv())
    for name, value in command.environment:
        again = again.with_environment(name, value)
    assert again == command
    assert again.argv() == command.argv()


@given(commands())
def test_a_shell_line_is_read_back_as_the_same_command(command: Command) -> None:
    again = parse(command.shell())
    assert again == command
    assert again.argv() == command.argv()
    assert again.shell() == command.shell()


@given(commands())
def test_a_command_does_not_differ_from_itself(command: Command) -> None:
    assert difference(command, command) == ()


@given(commands(), settings())
def test_a_flag_that_was_set_reads_back(command: Command, setting: tuple[str, FlagValue]) -> None:
    name, value = setting
    assert command.with_flag(name, value).flag(name) == value
    assert command.with_flag(name, None).flag(name) is None


@given(commands(), settings())
def test_a_change_is_exactly_one_difference(command: Command, setting: tuple[str, FlagValue]) -> None:
    name, value = setting
    without = command.with_flag(name, None)
    found = difference(without, without.with_flag(name, value))
    assert [(d.left, d.right) for d in found] == [(None, value)]
    assert all(command.flag(f.name) == without.flag(f.name) for f in without.flags)


@given(commands(), st.sampled_from(["a", "a.b", "c"]), st.sampled_from(["1", "true", "x y", '{"d": 1}', "-1"]))
def test_a_part_that_was_set_reads_back(command: Command, path: str, value: str) -> None:
    name = f"--compilation-config.{path}"
    changed = command.with_flag(name, value)
    assert changed.flag(name) == value
    assert changed.with_flag(name, None).flag(name) is None
    assert parse(changed.shell()) == changed


@given(commands(), NAMES, TEXTS)
def test_a_variable_that_was_set_is_the_only_difference(command: Command, name: str, value: str) -> None:
    without = command.with_environment(name, None)
    assert [d.name for d in difference(without, without.with_environment(name, value))] == [f"env:{name}"]


@given(commands(), st.sampled_from(["docker run -e A=1 --rm img", "docker run --gpus all vllm/vllm-openai:latest"]))
def test_inside_a_container_too(command: Command, client: str) -> None:
    official = "vllm-openai" in client
    inner = command.arguments() if official else command.argv()
    contained = parse([*client.split(), *inner])
    assert (contained.model, contained.flags) == (command.model, command.flags)
    for name, value in command.environment:
        contained = contained.with_environment(name, value)
    assert parse(contained.argv()) == contained
    assert parse(contained.shell()) == contained


@given(commands())
def test_inside_a_shell_text_too(command: Command) -> None:
    wrapped = parse(["bash", "-lc", command.shell()])
    assert (wrapped.model, wrapped.flags, wrapped.environment) == (command.model, command.flags, command.environment)
    assert parse(wrapped.argv()) == wrapped
