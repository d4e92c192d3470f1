"""The state of source trees (gitpython): commit, branch, what is not committed, remotes without credentials.

A tree that was named may be anyone's, so the hooks and the file monitor of its own configuration are switched off.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context, reason_of

_MOST_FILES = 50  # names of changed files; the count is always given
_LONGEST_DIFF = 200_000  # characters kept of what is not committed; its hash covers all
_LONGEST_KEY = 20_000  # characters
_SAFE = ["core.fsmonitor=false", "core.hooksPath=/dev/null"]


class SourceCollector:
    """One entry for each named tree; a tree that is none has the reason in its entry."""

    name = "source"
    deadline = 20.0
    fields = ("trees",)

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`trees`: [{path, commit, branch, dirty, changed, changed_count, untracked, diff, remotes} or {path,
        reason}]."""
        sources = tuple(dict.fromkeys((*context.sources, *mounted_trees(context.container))))
        if not sources:
            return {"trees": Fact.unavailable("no source tree was named, and none is mounted")}
        trees = [_tree(path, context.redactor) for path in sources]
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
        **(_difference(repository, redactor) if changed and head.is_valid() else {}),
        "remotes": {remote.name: [redactor.url(url) for url in remote.urls] for remote in repository.remotes},
    }


def _difference(repository: Any, redactor: Redactor) -> dict[str, Any]:
    """What is not committed against HEAD, as git shows it, masked."""
    text = str(repository.git.diff("HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all"))
    # Masked before it is cut: half a key is not told from text.
    return {
        "diff": redactor.text(text[: _LONGEST_DIFF + _LONGEST_KEY])[:_LONGEST_DIFF],
        "diff_cut": len(text) > _LONGEST_DIFF,
        "diff_sha256": hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest(),
    }


def mounted_trees(container: Mapping[str, Any] | None) -> tuple[Path, ...]:
    """The folders of this host that are mounted into a container and are git checkouts."""
    mounts = (container or {}).get("Mounts") or ()
    places = [Path(str(mount.get("Source", ""))) for mount in mounts if mount.get("Type") == "bind"]
    return tuple(place for place in places if (place / ".git").exists())


def _why(error: Exception) -> str:
    match type(error).__name__:
        case "InvalidGitRepositoryError":
            return "not a git checkout"
        case "NoSuchPathError":
            return "no such folder"
        case _:
            return reason_of(error)
