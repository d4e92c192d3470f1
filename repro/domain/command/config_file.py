"""The YAML file of `--config`, once read, laid under a command: vLLM reads it as flags in front of the written ones.

Source: _pull_args_from_config and load_config_file in vllm/utils/argparse_utils.py of vLLM 0.32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from repro.domain.command.command import Command
from repro.domain.command.flag import Flag, FlagValue, make_flag
from repro.domain.command.flag_names import canonical, read_name
from repro.domain.command.flag_spec import FlagKind
from repro.domain.command.settings import with_value


def apply_config(command: Command, config: Mapping[str, object]) -> Command:
    """The command that needs no file: its own flags win over the file's, `--config` is gone.

    A key with the value false counts only where vLLM has a `--no-` form; flags that collect get the file's values
    first.
    """
    written = {f.name.partition(".")[0] for f in command.flags}
    model = command.model
    below: list[Flag] = []
    for key, value in config.items():
        name = canonical(key)
        if name == "--model":
            model = model if model is not None else str(value)
        elif name not in written or _collects(name):
            below += _flags_of(name, value)
    flags = (*below, *with_value(command.flags, "--config", None))
    position = command.model_position
    if position is None and command.model is None and model is not None:
        position = 0
    moved = position + len(below) if position else position
    return replace(command, model=model, flags=flags, model_position=moved)


def _collects(name: str) -> bool:
    spec = read_name(name).spec
    return spec is not None and spec.kind is FlagKind.REPEATED


def _flags_of(name: str, value: object) -> list[Flag]:
    spec = read_name(name).spec
    if isinstance(value, bool):
        negatable = spec is not None and spec.kind is FlagKind.BOOLEAN
        return [make_flag(name, value)] if value or negatable else []
    if isinstance(value, list | tuple):
        items = tuple(str(item) for item in value)
        return (
            [make_flag(name, each) for each in (items if _collects(name) else [_several(name, items)])] if items else []
        )
    if isinstance(value, dict):
        return [make_flag(name, json.dumps(value, ensure_ascii=False))]
    return [make_flag(name, str(value))]


def _several(name: str, items: tuple[str, ...]) -> FlagValue:
    """A list for a flag of one value would be refused by vLLM behind its first item; JSON lists are meant as JSON."""
    spec = read_name(name).spec
    if spec is not None and spec.kind is FlagKind.JSON:
        return json.dumps(list(items), ensure_ascii=False)
    return items if spec is None or spec.kind is FlagKind.SEVERAL else items[0]
