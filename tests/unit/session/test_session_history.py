"""The history is a projection of the journal: one variable a commit, tags where they belong, always the same hashes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import git

from repro.session.history import configuration_text, write_history


def ask(reason: str, *trials: dict[str, Any]) -> dict[str, Any]:
    return {"event": "ask", "reason": reason, "trials": list(trials)}


def trial(identity: str, parent: str | None, purpose: str, **values: Any) -> dict[str, Any]:
    return {"id": identity, "parent": parent, "purpose": purpose, "values": values}


def finished(identity: str, outcome: str, at: int) -> dict[str, Any]:
    failure = {"stage": "serving", "family": "oom_gpu", "root_line": "CUDA out of memory"}
    answer = {"trial": identity, "outcome": outcome, "sent": 1, "missed": 0, "launches": 1, "seconds": 2.0}
    more = {"failure": failure} if outcome == "failed" else {}
    return {"event": "finished", "at": at, "answer": {**answer, **more}}


EVENTS = [
    ask("production end", trial("p-0", None, "production end", a=9, b="on")),
    finished("p-0", "failed", 1000),
    ask("minimal end", trial("m-0", None, "minimal end", a=1, b=None)),
    finished("m-0", "passed", 1010),
    ask("again", trial("m-1", "m-0", "minimal end", a=1, b=None)),
    finished("m-1", "passed", 1015),
    ask("stable/0 + a", trial("x-0", "m-0", "ladder", a=9, b=None)),
    finished("x-0", "passed", 1020),
    ask("stable/1 + b", trial("p-1", "x-0", "ladder", a=9, b="on")),
    finished("p-1", "failed", 1030),
]


def test_each_commit_is_one_variable_and_stable_tags_say_how_often(tmp_path: Path) -> None:
    assert write_history(tmp_path / "history.git", EVENTS) is None
    repository = git.Repo(tmp_path / "history.git")
    ladder = repository.commit("trials/004-passed")
    assert ladder.parents[0] == repository.commit("stable/0")
    shown = repository.git.show("trials/004-passed", "--format=", "--unified=0")
    assert [line for line in shown.splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")] == [
        "-a = 1",
        "+a = 9",
    ]
    assert repository.tags["stable/0"].tag is not None
    assert repository.tags["stable/0"].tag.message.strip() == "stable baseline 0: passed 2 of 2"
    assert repository.commit("main") == repository.commit("stable/1") == ladder
    assert "failed serving/oom_gpu" in str(repository.commit("trials/005-failed").message)
    assert repository.commit("target") == repository.commit("trials/001-failed")
    repository.close()


def test_a_deleted_history_comes_back_with_the_same_hashes_and_a_longer_journal_extends_it(tmp_path: Path) -> None:
    folder = tmp_path / "history.git"
    for count in range(2, len(EVENTS) + 1, 2):
        assert write_history(folder, EVENTS[:count]) is None
    with git.Repo(folder) as grown:
        refs = {ref.path: ref.commit.hexsha for ref in grown.references}
    shutil.rmtree(folder)
    assert write_history(folder, EVENTS) is None
    with git.Repo(folder) as anew:
        assert {ref.path: ref.commit.hexsha for ref in anew.references} == refs
        assert anew.git.fsck("--strict") == ""


def test_every_variable_is_one_line() -> None:
    assert configuration_text({"--x": ["a", "b"], "c": True, "b": None, "d": False}) == (
        "--x = a b\nb = absent\nc = on\nd = off\n"
    )


def test_a_repository_that_git_refuses_is_told_not_raised(tmp_path: Path) -> None:
    (tmp_path / "history.git").mkdir()
    reason = write_history(tmp_path / "history.git", EVENTS)
    assert reason is not None
    assert "could not be written" in reason
