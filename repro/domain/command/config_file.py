"""The YAML file of `--config`, once read, laid under a command: vLLM reads it as flags in front of the written ones.

Source: _pull_args_from_config and load_config_file in vllm/utils/argparse_utils.py of vLLM 0.32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from repro.domain.command.command import Command
from repro.domain.command.flag import Flag
from repro.domain.command.flag_names import read_name, spec_of
from repro.domain.command.flag_reader import read_arguments
from repro.domain.command.flag_spec import FlagKind
from repro.domain.command.settings import with_value


def apply_config(command: Command, config: Mapping[str, object]) -> Command:
    """The command that needs no file: its own flags win over the file's, `--config` is gone.

    Flags that collect get the file's values first. What the file says false counts only where vLLM lets it (see
    `ignored_entries`).
    """
    ignored = ignored_entries(command, config)
    below = read_arguments([t for key, value in config.items() if key not in ignored for t in _tokens(key, value)])
    written = {f.name.partition(".")[0] for f in command.flags}
    kept = [
        f for f in below.flags if f.name != "--model" and (f.name.partition(".")[0] not in written or _collects(f.name))
    ]
    extras = (
        *(() if below.model is None or _names_model(below.flags) else (below.model,)),
        *below.extras,
        *command.extras,
    )
    model = command.model if command.model is not None or not _names_model(below.flags) else below.model
    position = command.model_position
    if command.model is None and model is not None:
        position = 0
    return replace(
        command,
        model=model,
        flags=(*kept, *with_value(command.flags, "--config", None)),
        model_position=position + len(kept) if position else position,
        extras=extras,
    )


def ignored_entries(command: Command, config: Mapping[str, object]) -> tuple[str, ...]:
    """Keys of the file that vLLM passes over in silence: `enable-prefix-caching: false` switches nothing off.

    `vllm serve` looks for the `--no-` form in the parser above its own and never finds it; the API server's module
    finds it for keys written with dashes. Seen with vLLM 0.32.
    """
    serves = command.program[-1:] == ("serve",)
    return tuple(key for key, value in config.items() if value is False and (serves or not _negatable(key)))


def _negatable(key: str) -> bool:
    spec = spec_of(key)
    return spec is not None and spec.kind is FlagKind.BOOLEAN and key == spec.name[2:]


def _names_model(flags: Sequence[Flag]) -> bool:
    return any(f.name == "--model" for f in flags)


def _collects(name: str) -> bool:
    spec = read_name(name).spec
    return spec is not None and spec.kind is FlagKind.REPEATED


def _tokens(key: str, value: object) -> tuple[str, ...]:
    """One entry of the file as the words that vLLM makes of it; a list for a flag of one value goes wrong here as
    there.
    """
    written = "--" + key
    if isinstance(value, bool):
        return (written,) if value else (f"--no-{key}",)
    if isinstance(value, list | tuple):
        return (written, *(str(item) for item in value)) if value else ()
    if isinstance(value, dict):
        return (written, json.dumps(value, ensure_ascii=False))
    return (written, str(value))
