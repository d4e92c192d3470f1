"""Copies of the tiny model with one damage each, for failures of weights, configuration and tokenizer.

The choice: a damage is a function over a fresh copy, named as the fault is named, so that a test reads
`damaged("missing_shard", tiny, directory)` and the table below is the list of what there is.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from tests.real.bed.model import INDEX, SHARDS

Damage = Callable[[Path], None]


def _change_config(model: Path, **changes: object) -> None:
    path = model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, indent=1))


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def empty_directory(model: Path) -> None:
    for path in model.iterdir():
        path.unlink()


def missing_config(model: Path) -> None:
    (model / "config.json").unlink()


def config_not_json(model: Path) -> None:
    path = model / "config.json"
    _cut(path, path.stat().st_size // 2)


def unknown_model_type(model: Path) -> None:
    _change_config(model, model_type="kimi_k9", architectures=["KimiK9ForCausalLM"])


def unknown_architecture(model: Path) -> None:
    _change_config(model, architectures=["KimiK9ForCausalLM"])


def missing_shard(model: Path) -> None:
    (model / SHARDS[1]).unlink()


def no_weights(model: Path) -> None:
    for name in (INDEX, *SHARDS):
        (model / name).unlink()


def header_cut(model: Path) -> None:
    """Five bytes are left, fewer than the length that a safetensors file begins with."""
    _cut(model / SHARDS[0], 5)


def body_cut(model: Path) -> None:
    """The header is whole and tells of tensors that the file no longer holds, as after a broken download."""
    path = model / SHARDS[1]
    _cut(path, path.stat().st_size // 2)


def wrong_shape(model: Path) -> None:
    """The configuration asks for twice the inner size that the checkpoint has."""
    _change_config(model, intermediate_size=2 * json.loads((model / "config.json").read_text())["intermediate_size"])


def missing_tensor(model: Path) -> None:
    """The last norm is not in its shard's header any more; vLLM 0.32 becomes ready all the same."""
    path = model / SHARDS[1]
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    name = "model.norm.weight"
    header["unused.weight"] = header.pop(name)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])
    index = json.loads((model / INDEX).read_text())
    index["weight_map"]["unused.weight"] = index["weight_map"].pop(name)
    (model / INDEX).write_text(json.dumps(index))


def no_tokenizer(model: Path) -> None:
    """The chat template stays: without one too, vLLM 0.32 becomes ready."""
    for path in model.glob("tokenizer*"):
        path.unlink()


def unreadable(model: Path) -> None:
    """Shows only to a process without CAP_DAC_OVERRIDE: root reads on."""
    (model / SHARDS[0]).chmod(0)


def unreadable_config(model: Path) -> None:
    """As `unreadable`, for config.json."""
    (model / "config.json").chmod(0)


def fifo_weights(model: Path) -> None:
    """A pipe that nobody writes to: opening it waits for ever, as a dead network file system does."""
    (model / SHARDS[0]).unlink()
    os.mkfifo(model / SHARDS[0])


DAMAGES: dict[str, Damage] = {
    damage.__name__: damage
    for damage in (
        *(empty_directory, missing_config, config_not_json, unknown_model_type, unknown_architecture, missing_shard),
        *(
            no_weights,
            header_cut,
            body_cut,
            wrong_shape,
            missing_tensor,
            no_tokenizer,
            unreadable,
            unreadable_config,
            fifo_weights,
        ),
    )
}


def damaged(name: str, tiny: Path, parent: Path) -> Path:
    """Copies the tiny model to `parent/name` and damages the copy; KeyError for a damage that is not in DAMAGES."""
    damage = DAMAGES[name]
    copy = parent / name
    shutil.copytree(tiny, copy)
    damage(copy)
    return copy
