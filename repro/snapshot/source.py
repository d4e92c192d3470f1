"""The state of source trees (gitpython): commit, branch, what is not committed, remotes without credentials.

A tree that was named may be anyone's, so the hooks and the file monitor of its own configuration are switched off.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context, reason_of

_MOST_FILES = 50  # names of changed files; the count is always given
_SAFE = ["core.fsmonitor=false", "core.hooksPath=/dev/null"]


class SourceCollector:
    """One entry for each named tree; a tree that is none has the reason in its entry."""

    name = "source"
    deadline = 20.0
    fields = ("trees",)

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`trees`: [{path, commit, branch, dirty, changed, changed_count, untracked, remotes} or {path, reason}]."""
        if not context.sources:
            return {"trees": Fact.unavailable("no source tree was named")}
        trees = [_tree(path, context.redactor) for path in context.sources]
        return {"trees": Fact.measured(context.redactor.json(trees))}


def _tree(path: Path, redactor: Redactor) -> dict[str, Any]:
    try:
        import git

        with git.Repo(path, search_parent_directories=True) as repository:
            return {"path": str(path), **_state(repository, redactor)}
    except Exception as error:  # no git, no repository, another owner: whatever it is, it costs this entry alone
        return {"path": str(path), "reason": _why(error)}


def _state(repository: Any, redactor: Redactor) -> dict[str, Any]:
    run = repository.git
    run.set_persistent_git_options(c=_SAFE)
    lines = run.status("--porcelain", "--untracked-files=normal", "--ignore-submodules=all").splitlines()
    untracked = [line[3:] for line in lines if line.startswith("??")]
    changed = [line[3:] for line in lines if not line.startswith("??")]
    head = repository.head
    return {
        "root": str(repository.working_tree_dir),
        "commit": head.commit.hexsha if head.is_valid() else None,
        "branch": None if head.is_detached else head.reference.name,
        "dirty": bool(changed),
        "changed": changed[:_MOST_FILES],
        "changed_count": len(changed),
        "untracked": len(untracked),
        "remotes": {remote.name: [redactor.url(url) for url in remote.urls] for remote in repository.remotes},
    }


def _why(error: Exception) -> str:
    match type(error).__name__:
        case "InvalidGitRepositoryError":
            return "not a git checkout"
        case "NoSuchPathError":
            return "no such folder"
        case _:
            return reason_of(error)
