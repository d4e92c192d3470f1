"""Log parts: numbers as `grep -n` counts, the root marked, and a long log cut at its head with a word about it."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.errors import InvalidFile
from repro.handoff.log_excerpt import copy_log, excerpt, plain


def packed(path: Path, lines: list[str]) -> Path:
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


@pytest.mark.parametrize(("root", "first", "last"), [(1, 1, 3), (5, 3, 7), (10, 8, 10)])
def test_lines_around_the_root_keep_their_numbers(tmp_path: Path, root: int, first: int, last: int) -> None:
    log = packed(tmp_path / "a.gz", [f"line {n}" for n in range(1, 11)])
    found = excerpt(log, root, before=2, after=2)
    assert found.lines == tuple((n, f"line {n}") for n in range(first, last + 1))
    assert [line for line in found.text().splitlines() if line.startswith(">")] == [f">{root:7d}  line {root}"]
    assert found.around(1, 0).lines == tuple((n, f"line {n}") for n in (root - 1, root) if n > 0)


def test_a_wide_line_is_cut_where_it_is_asked_for(tmp_path: Path) -> None:
    found = excerpt(packed(tmp_path / "a.gz", ["x" * 900, "y" * 400]), 1)
    assert [len(line) for line in found.text().splitlines()] == [10 + 900, 10 + 400]
    assert [line[-9:] for line in found.text(400).splitlines()] == ["xxx [...]", "y" * 9]


def test_without_a_root_the_last_lines_are_taken(tmp_path: Path) -> None:
    log = packed(tmp_path / "a.gz", [f"line {n}" for n in range(1, 11)])
    assert [n for n, _ in excerpt(log, None, before=1, after=1).lines] == [8, 9, 10]
    assert [n for n, _ in excerpt(log, None).around(1, 1).lines] == [8, 9, 10]


def test_colours_and_control_characters_go() -> None:
    assert plain("\x1b[31mred\x1b[0m\r and\ttab\x07 한글 \x9b") == "red and\ttab 한글 "


def test_a_short_log_is_copied_as_it_is(tmp_path: Path) -> None:
    log = packed(tmp_path / "a.gz", ["one", "two"])
    assert copy_log(log, tmp_path / "b.gz") == 0
    assert (tmp_path / "b.gz").read_bytes() == log.read_bytes()


@settings(max_examples=60)
@given(st.lists(st.text(alphabet="ab", max_size=40), min_size=1, max_size=60), st.integers(8, 200))
def test_a_long_log_keeps_its_end_and_says_what_is_missing(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = packed(folder / "a.gz", lines)
    left_out = copy_log(log, folder / "b.gz", limit)
    kept = gzip.decompress((folder / "b.gz").read_bytes()).decode()
    size = sum(len(line) + 1 for line in lines)
    if size <= limit:
        assert (left_out, kept) == (0, "".join(f"{line}\n" for line in lines))
        return
    head, _, tail = kept.partition("\n")
    assert head == f"[repro] lines 1 to {left_out} are left out; the next line is line {left_out + 1}"
    assert len(tail) <= limit
    whole = "".join(f"{line}\n" for line in lines[left_out:])
    # Whole lines, but for a line that alone is longer than the limit.
    assert tail == whole or whole.endswith(tail)
    assert copy_log(log, folder / "c.gz", limit) == left_out
    assert (folder / "c.gz").read_bytes() == (folder / "b.gz").read_bytes()


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    log = tmp_path / "a.gz"
    with gzip.open(log, "wb", compresslevel=1) as out:
        for n in range(40):
            out.write(b"".join(b"INFO line %d of a long log\n" % k for k in range(n * 20_000, (n + 1) * 20_000)))
    tracemalloc.start()
    left_out = copy_log(log, tmp_path / "b.gz", limit=1 << 20)
    excerpt(log, 700_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert left_out > 700_000
    assert peak < 8 << 20  # a few limits; the log has 25 MB


def test_a_broken_log_is_named(tmp_path: Path) -> None:
    log = packed(tmp_path / "a.gz", ["one"])
    log.write_bytes(log.read_bytes()[:-4])
    with pytest.raises(InvalidFile, match=r"a\.gz cannot be read"):
        excerpt(log, 1)
