"""Python's way of printing configurations is read as data."""

from __future__ import annotations

import pytest

from repro.domain.command.printed_values import Unreadable, read_printed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("None", None),
        ("-1.5", -1.5),
        ("'a\\'b'", "a'b"),
        ("[1, (2, 3), {4}]", [1, [2, 3], [4]]),
        ('{"a": null, "b": [true, false]}', {"a": None, "b": [True, False]}),
        ("<Mode.COMPILE: 3>", 3),
        ("<Kind.BACKED: 'backed'>", "backed"),
        ("<Graphs.FULL_AND_PIECEWISE: (2, 1)>", "FULL_AND_PIECEWISE"),
        ("torch.bfloat16", "bfloat16"),
        ("PosixPath('/x')", "/x"),
        ("Config(a=1, b=None, c=[], d=Inner(e='f'), g=False)", {"a": 1, "d": {"e": "f"}, "g": False}),
    ],
)
def test_values(text: str, value: object) -> None:
    assert read_printed(text) == value


@pytest.mark.parametrize(
    "text", ["<function f at 0x7f3a>", "f(1, 2)", "x", "a + b", "[1, ", "-'a'", "{**a}", "b'x'", "...", ""]
)
def test_what_is_not_data(text: str) -> None:
    with pytest.raises(Unreadable):
        read_printed(text)
