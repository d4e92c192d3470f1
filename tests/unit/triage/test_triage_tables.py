"""Every row of the data tables speaks for itself: its example, and each further one, is found by that row and no other."""

# ruff: noqa: E501 (log lines stand here as programs print them)
from __future__ import annotations

from pathlib import Path

import pytest

from repro.domain.stage import Stage
from repro.errors import InvalidFile
from repro.triage import PatternTable, shipped_table, triage_text
from repro.triage.classify import find_pattern
from repro.triage.evidence import Piece
from repro.triage.framing import Frame
from repro.triage.table_files import parse_table, with_files
from repro.triage.tables import Area, Consequence, Harmless, Marker, Pattern, Row, first
from repro.triage.traceback_assembly import Raised, exception_of

TABLE = shipped_table()
ROWS: list[tuple[tuple[Row, ...], Row]] = [
    (rows, row) for rows in (TABLE.markers, TABLE.consequences, TABLE.harmless, TABLE.areas) for row in rows
]
WORDINGS = [(row, text) for row in TABLE.patterns for text in (row.example, *row.more)]


def piece_of(row: Pattern, text: str) -> Piece:
    source = Frame(text, source=row.example_source or None)
    parts = exception_of(text, in_traceback=bool(row.example_frame))
    if parts is None and not row.example_frame:
        return Piece(1, text, source, Stage.ENGINE_INIT, False)
    name, words = parts or (text, "")
    frames = (row.example_frame,) if row.example_frame else ()
    return Piece(1, text, source, Stage.ENGINE_INIT, False, Raised(1, text, name, words, source, frames))


@pytest.mark.parametrize(("row", "text"), WORDINGS, ids=[f"{row.id}-{n}" for n, (row, _) in enumerate(WORDINGS)])
def test_a_pattern_is_the_first_to_fit_its_examples(row: Pattern, text: str) -> None:
    rows = tuple(other for other in TABLE.patterns if (other.kind == "hint") == (row.kind == "hint"))
    found = find_pattern(rows, piece_of(row, text))
    assert found is not None
    assert found.id == row.id


@pytest.mark.parametrize(("rows", "row"), ROWS, ids=[f"{type(row).__name__}-{row.id}" for _, row in ROWS])
def test_a_row_fits_its_own_examples_first(rows: tuple[Row, ...], row: Row) -> None:
    limited = tuple(
        r for r in rows if not (isinstance(r, Area) and isinstance(row, Area)) or r.exceptions == row.exceptions
    )
    for text in (row.example, *row.more):
        found = first(limited, text)
        assert found is not None
        assert found.id == row.id


def test_every_row_says_why_and_has_a_name_of_its_own() -> None:
    for rows in (TABLE.markers, TABLE.patterns, TABLE.consequences, TABLE.harmless, TABLE.areas):
        assert len({row.id for row in rows}) == len(rows)
        assert all(len(row.why) > 10 for row in rows)


@pytest.mark.parametrize("row", TABLE.harmless, ids=[row.id for row in TABLE.harmless])
def test_a_harmless_line_alone_is_never_a_failure_of_a_ready_server(row: Harmless) -> None:
    ready = "(APIServer pid=1) INFO 10-18 03:19:10 [api_server.py:1805] vLLM API server version 0.10.2\nINFO:     Application startup complete.\n"
    for line in (row.example, f"(EngineCore_DP0 pid=9) ERROR 10-18 03:19:11 [core.py:7] {row.example}"):
        assert triage_text(f"{ready}{line}\n").stage is Stage.NONE


@pytest.mark.parametrize("row", TABLE.consequences, ids=[row.id for row in TABLE.consequences])
def test_a_consequence_never_beats_a_cause_behind_it(row: Consequence) -> None:
    start = "(APIServer pid=1) INFO 10-18 03:19:10 [api_server.py:1805] vLLM API server version 0.10.2\n"
    cause = "(Worker_TP1 pid=8) ERROR 10-18 03:19:12 [multiproc_executor.py:7] torch.OutOfMemoryError: CUDA out of memory.\n"
    answer = triage_text(f"{start}(EngineCore_DP0 pid=9) ERROR 10-18 03:19:11 [core.py:7] {row.example}\n{cause}")
    assert answer.root_line_no == 3
    assert answer.family is not None
    assert answer.family.value == "oom_gpu"


def test_a_marker_proves_stages_in_time_order() -> None:
    for row in TABLE.markers:
        assert isinstance(row, Marker)
        positions = [stage.position for stage in row.proves]
        assert positions == sorted(positions)


def test_a_user_file_goes_before_the_shipped_rows(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        '[[pattern]]\nid = "ours"\nany = ["house rule 7"]\nstage = "api_ready"\nfamily = "config_invalid"\n'
        'example = "house rule 7"\nwhy = "our own launcher checks it"\n',
        encoding="utf-8",
    )
    table = with_files(TABLE, [own])
    assert table.patterns[0].id == "ours"
    assert len(table.patterns) == len(TABLE.patterns) + 1


@pytest.mark.parametrize(
    "text",
    [
        "pattern = 3\n",
        '[[pattern]]\nid = "x"\nany = ["y"]\nstage = "serving"\nfamilly = "other"\nexample = "y"\nwhy = "z"\n',
        '[[pattern]]\nid = "x"\nany = ["y"]\nstage = "serving"\nfamily = "other"\nexample = "y"\nwhy = "z"\nkeen = 1\n',
        '[[pattern]]\nid = "x"\nany = ["y"]\nstage = "serving"\nfamily = "other"\nexample = "n"\nwhy = "z"\n',
        "[[pattern]\n",
        "[[nonsense]]\nid = 'x'\n",
        '[[pattern]]\nid = "x"\nany = ["y"]\nstage = "somewhere"\nfamily = "other"\nexample = "y"\nwhy = "z"\n',
        '[[pattern]]\nid = "x"\nany = ["y"]\nstage = "serving"\nfamily = "other"\nexample = "y"\nwhy = "z"\nregex = "("\n',
        '[[pattern]]\nid = "x"\nany = "y"\nstage = "serving"\nfamily = "other"\nexample = "y"\nwhy = "z"\n',
        '[[pattern]]\nid = "x"\n',
        '[[pattern]]\nid = "x"\nany = ["y"]\nkind = "odd"\nstage = "serving"\nfamily = "other"\nexample = "y"\nwhy = "z"\n',
    ],
)
def test_a_wrong_user_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidFile, match=r"mine\.toml") as refused:
        with_files(TABLE, [path])
    assert refused.value.hint


def test_an_unreadable_user_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"gone\.toml"):
        with_files(PatternTable(), [tmp_path / "gone.toml"])


def test_tables_read_from_text_keep_their_order() -> None:
    row = '[[harmless]]\nid = "{0}"\nany = ["{0}"]\nexample = "{0}"\nwhy = "a reason"\n'
    assert [r.id for r in parse_table(row.format("a") + row.format("b"), "t").harmless] == ["a", "b"]


def test_a_regex_reads_a_bounded_part_of_a_line() -> None:
    """Some take the square of what they read: a line of 64 KB would hold up a live log for seconds."""
    row = next(row for row in TABLE.harmless if row.id == "free-memory-info")
    head, tail = "Free memory on device ", " Desired GPU memory utilization is (0.9, 71.2 GiB)"
    assert row.fits(head + "x" * 3000 + tail)
    assert not row.fits(head + "x" * 60_000 + tail)


def test_a_wrong_name_in_a_user_file_is_told_with_row_and_mend(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    row = '[[pattern]]\nid = "ours"\nany = ["y"]\nstage = "{}"\nfamily = "{}"\nexample = "y"\nwhy = "z"\n'
    path.write_text(row.format("somewhere", "other"), encoding="utf-8")
    with pytest.raises(InvalidFile, match="pattern ours: 'somewhere'") as refused:
        with_files(TABLE, [path])
    assert "weight_access" in refused.value.hint
    path.write_text(row.format("serving", "nothing"), encoding="utf-8")
    with pytest.raises(InvalidFile, match="pattern ours: 'nothing'") as refused:
        with_files(TABLE, [path])
    assert "oom_gpu" in refused.value.hint
