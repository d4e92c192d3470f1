"""Where a model's files lie on this machine: a folder, or a hub name in the local cache. Nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


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


def find_mounted(
    model: str, revision: str | None, environment: Mapping[str, str], container: Mapping[str, Any]
) -> tuple[Path, str | None]:
    """As `find_model`, for a model or a hub's cache that is mounted into a container with this environment."""
    if model.startswith("/"):
        return find_model(str(on_host(model, container)), revision, {})
    cache = on_host(str(_hub_cache(environment, environment.get("HOME") or "/root")), container)
    return find_model(model, revision, {"HF_HUB_CACHE": str(cache)})


def on_host(model: str, container: Mapping[str, Any]) -> Path:
    """The host's folder of a model that is mounted into a container under an absolute path. Raises LookupError."""
    for mount in container.get("Mounts") or ():
        source, destination = Path(str(mount.get("Source", ""))), Path(str(mount.get("Destination", "")))
        if destination == Path(model) or destination in Path(model).parents:
            return source / Path(model).relative_to(destination)
    raise LookupError("the model is read inside the container")


def place_of(model: str, environment: Mapping[str, str]) -> Path:
    """Where the model is, or would be put."""
    local = Path(model).expanduser()
    return local if local.exists() or local.is_absolute() else hub_folder(model, environment)


def hub_folder(model: str, environment: Mapping[str, str]) -> Path:
    """The folder of a hub model in the cache that a process with this environment uses."""
    return _hub_cache(environment) / f"models--{model.replace('/', '--')}"


def _hub_cache(environment: Mapping[str, str], home: str | None = None) -> Path:
    """`home` is that of the process's user, None for our own."""
    place = environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE")
    if not place:
        hub = environment.get("HF_HOME") or f"{environment.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
        place = f"{hub}/hub"
    return Path(home + place[1:]) if home is not None and place.startswith("~/") else Path(place).expanduser()
