"""Where a model's files lie on this machine: a folder, or a hub name in the local cache. Nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def find_model(model: str, revision: str | None, environment: Mapping[str, str]) -> tuple[Path, str | None]:
    """The folder of a model and its revision. Raises LookupError where it is not on this machine."""
    local = Path(model).expanduser()
    if local.is_dir():
        return local, None
    cached = hub_folder(model, environment)
    if not cached.is_dir():
        raise LookupError(f"{model} is neither a folder nor in the cache {cached.parent}")
    reference = cached / "refs" / (revision or "main")
    commit = reference.read_text(encoding="ascii").strip() if reference.is_file() else revision
    if not commit or not (cached / "snapshots" / commit).is_dir():
        raise LookupError(f"revision {revision or 'main'} of {model} is not in the cache {cached.parent}")
    return cached / "snapshots" / commit, commit


def place_of(model: str, environment: Mapping[str, str]) -> Path:
    """Where the model is, or would be put."""
    local = Path(model).expanduser()
    return local if local.exists() or local.is_absolute() else hub_folder(model, environment)


def hub_folder(model: str, environment: Mapping[str, str]) -> Path:
    """The folder of a hub model in the cache that a process with this environment uses."""
    return _hub_cache(environment) / f"models--{model.replace('/', '--')}"


def _hub_cache(environment: Mapping[str, str]) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return Path(environment[name]).expanduser()
    home = environment.get("HF_HOME") or f"{environment.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(home).expanduser() / "hub"
