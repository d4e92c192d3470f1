"""The state of a real git checkout, its remotes without credentials."""

from __future__ import annotations

from pathlib import Path

import git
import pytest

from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context
from repro.snapshot.source import SourceCollector


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    with git.Repo.init(tmp_path / "tree", initial_branch="work") as repository:
        (tmp_path / "tree/a.py").write_text("1\n")
        repository.index.add(["a.py"])
        repository.index.commit("first")
        repository.create_remote("origin", "https://bob:pass-word-1@git.local/x.git")
    return tmp_path / "tree"


def test_a_dirty_checkout(tree: Path) -> None:
    (tree / "a.py").write_text("2\n")
    (tree / "new.py").write_text("3\n")
    (state,) = SourceCollector().collect(Context(Redactor(), sources=(tree,)))["trees"].value
    with git.Repo(tree) as repository:
        assert state["commit"] == repository.head.commit.hexsha
    assert state["branch"] == "work"
    assert state["dirty"] is True
    assert state["changed"] == ["a.py"]
    assert state["untracked"] == 1
    assert state["remotes"] == {"origin": ["https://bob:***masked:url_password:1***@git.local/x.git"]}


def test_its_own_configuration_starts_no_program(tree: Path, tmp_path: Path) -> None:
    monitor = tmp_path / "monitor"
    monitor.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}\n")
    monitor.chmod(0o755)
    with git.Repo(tree) as repository, repository.config_writer() as writer:
        writer.set_value("core", "fsmonitor", str(monitor))
    SourceCollector().collect(Context(Redactor(), sources=(tree,)))
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_is_no_checkout_costs_its_own_entry(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    sources = (tmp_path / "plain", tmp_path / "absent", tree)
    plain, absent, good = SourceCollector().collect(Context(Redactor(), sources=sources))["trees"].value
    assert plain["reason"] == "not a git checkout"
    assert absent["reason"] == "no such folder"
    assert good["dirty"] is False
