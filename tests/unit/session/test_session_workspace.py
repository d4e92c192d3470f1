"""Finding, making and holding a workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.errors import UsageError, WorkspaceBusy, WorkspaceUnusable
from repro.session.workspace import Workspace


def test_it_is_found_upwards_and_made_only_where_none_is(tmp_path: Path) -> None:
    made = Workspace.open(tmp_path)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert Workspace.open(deep) == made
    assert (made.root / ".gitignore").read_text() == "*\n"


def test_ids_are_never_used_twice(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path)
    first, second = workspace.new("sessions", 1_700_000_000), workspace.new("sessions", 1_700_000_000)
    assert first.name == "20231114-221320"
    assert second.name == "20231114-221320-1"
    assert workspace.existing("sessions", None) == second
    with pytest.raises(UsageError, match="no session nope") as seen:
        workspace.existing("sessions", "nope")
    assert first.name in seen.value.hint


def test_a_second_search_is_told_who_holds_the_workspace(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path)
    with workspace.locked("bisect"):
        with pytest.raises(WorkspaceBusy, match=r"bisect \(pid \d+\)") as seen, workspace.locked("run"):
            pass
        assert seen.value.exit_code == 125
    with workspace.locked("run"):
        pass


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    """A file stands where the folder should be; root ignores permission bits, so those prove nothing here."""
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceUnusable, match="cannot be written") as seen:
        Workspace.open(tmp_path / "file")
    assert seen.value.exit_code == 2


def test_the_newest_of_one_second_is_the_last_made(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path)
    made = [workspace.new("sessions", 1_700_000_000) for _ in range(12)]
    assert workspace.existing("sessions", None) == made[-1]
