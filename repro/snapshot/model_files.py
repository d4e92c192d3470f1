"""The model's files: where they are, whether all are there, and a digest that changes when any of them is replaced.

Weights are told apart by size and time of change, not read: hashing a terabyte takes longer than the fault lasts, so
that is done on request alone. What is small and decides everything (configuration, tokenizer, chat template, code that
the model brings) is hashed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from repro.domain.fingerprint import Fact
from repro.snapshot.collector import Context, attempt
from repro.snapshot.model_place import find_model, find_mounted

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_SMALL = (".json", ".py", ".jinja", ".txt", ".model", ".tiktoken", ".yaml")
_SMALL_BYTES = 64 << 20  # a tokenizer of 200,000 words has 20 MB
_HASH_CHUNK = 1 << 22
_LISTED = 400  # weight files listed one by one; counts and sums cover all


class ModelFilesCollector:
    """A local folder, or a hub name resolved in the local cache; nothing is downloaded."""

    name = "model_files"
    deadline = 20.0
    fields = (
        "path",
        "revision",
        "files",
        "weight_files",
        "weights",
        "bytes",
        "index",
        "small_files",
        "weight_hashes",
        "config_sha256",
        "digest",
    )

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`bytes` over all files; `weights`: [{name, bytes, changed}], Unix seconds; `small_files`: {name: SHA-256};
        `digest` is a SHA-256 over names, sizes, times of change and the configuration.
        """
        place = attempt(lambda: _place(context))
        if not place.known:
            return dict.fromkeys(self.fields, Fact.unavailable(context.redactor.text(place.reason)))
        folder, revision = place.value
        files = sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
        weights = [path for path in files if path.suffix in WEIGHTS]
        config = attempt(lambda: _sha256(folder / "config.json"))
        return {
            "path": Fact.measured(context.redactor.text(str(folder))),
            "revision": Fact.measured(revision) if revision else Fact.unavailable("a plain folder has no revision"),
            "files": Fact.measured(len(files)),
            "weight_files": Fact.measured(len(weights)),
            "weights": attempt(lambda: [_weight(folder, path) for path in weights[:_LISTED]]),
            "bytes": attempt(lambda: sum(path.stat().st_size for path in files)),
            "index": attempt(lambda: check_index(folder)),
            "small_files": attempt(lambda: {str(p.relative_to(folder)): _sha256(p) for p in files if _is_small(p)}),
            "weight_hashes": attempt(lambda: {str(p.relative_to(folder)): _sha256(p) for p in weights})
            if context.hash_weights
            else Fact.unavailable("weights are told apart by size and time; --hash-weights reads them"),
            "config_sha256": config,
            "digest": attempt(lambda: _digest(folder, files, config)),
        }


class HashingModelFilesCollector(ModelFilesCollector):
    """The same with the time that reading all weights takes."""

    deadline = 6 * 3600.0


def check_index(folder: Path) -> dict[str, Any]:
    """Whether the files that the safetensors index names are there: {shards, missing, unlisted, tensors, total_size}.

    LookupError for a model without an index (one file needs none).
    """
    found = sorted(folder.glob("*.safetensors.index.json"))
    if not found:
        raise LookupError("the model has no safetensors index")
    document = json.loads(found[0].read_text(encoding="utf-8"))
    tensors = document["weight_map"]
    named = set(tensors.values())
    present = {path.name for path in folder.glob("*.safetensors")}
    sizes = [(folder / name).stat().st_size for name in named & present]
    return {
        "file": found[0].name,
        "shards": len(named),
        "missing": sorted(named - present),
        "unlisted": sorted(present - named),
        "tensors": len(tensors),
        "total_size": (document.get("metadata") or {}).get("total_size"),
        "bytes_present": sum(sizes),
    }


def _place(context: Context) -> tuple[Path, str | None]:
    command = context.command
    model, revision = context.model, context.model_revision
    environment = context.server_environment()
    if model is not None:
        return find_model(model, revision, environment)
    if command is None or command.model is None:
        raise LookupError("no model was named")
    written = command.flag("--revision")
    revision = revision or (written if isinstance(written, str) else None)
    if context.container is not None:
        return find_mounted(command.model, revision, environment, context.container)
    if command.container is not None:
        raise LookupError("the model is read inside the container")
    if elsewhere := context.elsewhere():
        raise LookupError(elsewhere)
    return find_model(command.model, revision, environment)


def _weight(folder: Path, path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"name": str(path.relative_to(folder)), "bytes": status.st_size, "changed": round(status.st_mtime, 3)}


def _is_small(path: Path) -> bool:
    return path.suffix in _SMALL and path.stat().st_size <= _SMALL_BYTES


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _digest(folder: Path, files: list[Path], config: Fact) -> str:
    rows = [[str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    return hashlib.sha256(json.dumps([rows, config.value]).encode()).hexdigest()
