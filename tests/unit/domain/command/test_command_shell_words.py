"""Shell text is split as sh splits it."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.domain.command.shell_words import read_shell


def words(text: str, **variables: str) -> list[tuple[str, ...]]:
    return [s.words for s in read_shell(text, variables).statements]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c", [("a", "b", "c")]),
        ("a 'b c' \"d e\" f\\ g", [("a", "b c", "d e", "f g")]),
        ("a 'x'\"y\"z", [("a", "xyz")]),
        ("a '' \"\"", [("a", "", "")]),
        ("a \\\n  b", [("a", "b")]),
        ("a b\\\nc", [("a", "bc")]),
        ('a "b\\\nc"', [("a", "bc")]),
        ("a '\\\n'", [("a", "\\\n")]),
        ("a \\ \n b", [("a", " "), ("b",)]),
        ("a # b\nc", [("a",), ("c",)]),
        ("a#b", [("a#b",)]),
        ("a && b || c; d & e | f", [("a",), ("b",), ("c",), ("d",), ("e",), ("f",)]),
        ("a '&&' \";\"", [("a", "&&", ";")]),
        ("a >log 2>&1 </dev/null &>x b", [("a", "b")]),
        ("a 2> log --x=1>y", [("a", "--x=1")]),
        ("a --port 8000>log", [("a", "--port")]),
        ('a "\\$X \\"q\\" \\\\ \\n"', [("a", '$X "q" \\ \\n')]),
        ("a '$X'", [("a", "$X")]),
        ("X=1; a $X ${X} \"$X\" '$X'", [("X=1",), ("a", "1", "1", "1", "$X")]),
        ("X='b c'; a $X \"$X\"", [("X=b c",), ("a", "b", "c", "b c")]),
        ("X=; a $X b", [("X=",), ("a", "b")]),
        ("a ${Y:-d} ${Y-e} ${Y:-}", [("a", "d", "e")]),
        ("export X=1 Y=2\na $X$Y", [("export", "X=1", "Y=2"), ("a", "12")]),
        ("a 5$ $", [("a", "5$", "$")]),
        ("a $OUT", [("a", "side")]),
        ("a $(pwd)/x", [("a", "$PWD/x")]),
        ('a "$(dirname "$0")/x" b', [("a", '$(dirname "$0")/x', "b")]),
        ("D=$(date +%F); a log-$D", [("D=$(date +%F)",), ("a", "log-$(date +%F)")]),
        ('a `b c` ${X%%y} $! $\'t\' "$\'" "$@"', [("a", "`b c`", "${X%%y}", "$!", "$'t'", "$'", "$@")]),
        ("a ~/x y~/z ~", [("a", "$HOME/x", "y~/z", "$HOME")]),
        ("a\r\nb\r\n", [("a",), ("b",)]),
        ("", []),
    ],
)
def test_words(text: str, expected: list[tuple[str, ...]]) -> None:
    assert words(text, OUT="side") == expected


def test_names_without_a_value_are_told() -> None:
    assert read_shell("a $X ~/y ${Z:-1} $W", {"W": "1"}).unexpanded == {"$X", "$HOME"}


def test_a_chain_keeps_its_text_together() -> None:
    sources = [s.source for s in read_shell("cd /x && rm y || true; z  # why\nlast", {}).statements]
    assert sources == ["cd /x &&", "", "rm y || true ;", "z ;", "last ;"]


@given(st.lists(st.text(min_size=1), min_size=1))
def test_whatever_is_quoted_comes_back(tokens: list[str]) -> None:
    tokens = [t.replace("\r\n", "\n").replace("\x00", "") for t in tokens]
    assert words(shlex.join(["a", *tokens])) == [("a", *tokens)]
