"""The model's files: where they are, how many, and a digest that changes when any of them is replaced.

Weights are told apart by size and time of change, not read: hashing a terabyte takes longer than the fault lasts.
`config.json` is small and decides everything, so it is hashed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from repro.domain.fingerprint import Fact
from repro.snapshot.collector import Context, attempt

_WEIGHTS = (".safetensors", ".bin", ".pt", ".gguf")


class ModelFilesCollector:
    """A local folder, or a hub name resolved in the local cache; nothing is downloaded."""

    name = "model_files"
    deadline = 20.0
    fields = ("path", "revision", "files", "weight_files", "bytes", "config_sha256", "digest")

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`bytes` over all files; `digest` is a SHA-256 over names, sizes, times of change and the configuration."""
        place = attempt(lambda: _place(context))
        if not place.known:
            return dict.fromkeys(self.fields, Fact.unavailable(place.reason))
        folder, revision = place.value
        files = sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
        sizes = [path.stat().st_size for path in files]
        config = attempt(lambda: hashlib.sha256((folder / "config.json").read_bytes()).hexdigest())
        return {
            "path": Fact.measured(context.redactor.text(str(folder))),
            "revision": Fact.measured(revision) if revision else Fact.unavailable("a plain folder has no revision"),
            "files": Fact.measured(len(files)),
            "weight_files": Fact.measured(sum(path.suffix in _WEIGHTS for path in files)),
            "bytes": Fact.measured(sum(sizes)),
            "config_sha256": config,
            "digest": attempt(lambda: _digest(folder, files, config)),
        }


def _place(context: Context) -> tuple[Path, str | None]:
    command = context.command
    model, revision = context.model, context.model_revision
    if model is None and command is not None:
        if command.container is not None:
            raise LookupError("the model is read inside the container")
        written = command.flag("--revision")
        model, revision = command.model, revision or (written if isinstance(written, str) else None)
    if model is None:
        raise LookupError("no model was named")
    return find_model(model, revision, context.server_environment())


def find_model(model: str, revision: str | None, environment: Mapping[str, str]) -> tuple[Path, str | None]:
    """The folder of a model and its revision. Raises LookupError where it is not on this machine."""
    local = Path(model).expanduser()
    if local.is_dir():
        return local, None
    cached = _hub_cache(environment) / f"models--{model.replace('/', '--')}"
    if not cached.is_dir():
        raise LookupError(f"{model} is neither a folder nor in the cache {cached.parent}")
    reference = cached / "refs" / (revision or "main")
    commit = reference.read_text(encoding="ascii").strip() if reference.is_file() else revision
    if not commit or not (cached / "snapshots" / commit).is_dir():
        raise LookupError(f"revision {revision or 'main'} of {model} is not in the cache {cached.parent}")
    return cached / "snapshots" / commit, commit


def _hub_cache(environment: Mapping[str, str]) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environment.get(name):
            return Path(environment[name]).expanduser()
    home = environment.get("HF_HOME") or f"{environment.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return Path(home).expanduser() / "hub"


def _digest(folder: Path, files: list[Path], config: Fact) -> str:
    rows = [[str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    return hashlib.sha256(json.dumps([rows, config.value]).encode()).hexdigest()
