"""Understands the command line of `vllm serve` as vLLM 0.32 does, with argparse's own refusals (exit code 2).

The parser is argparse itself, fed from `flag_table`, so that a wrong command is refused in the words of the real
server under every Python version. Dotted parts (`--compilation-config.mode none`, `-cc.mode=none`) are gathered
into the structure they belong to, underscores may stand for dashes, and `--config FILE` puts a YAML file's flags
before the rest.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from repro.simulator import flag_table

_TOP_USAGE = (
    "usage: vllm [-h] [-v]\n"
    "            {chat,complete,serve,launch,bench,collect-env,download-kernels,preload,run-batch,snapshot}\n"
    "            ...\n"
)
_MAGNITUDES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_NAMES = (
    *flag_table.SWITCHES,
    *flag_table.INTEGERS,
    *flag_table.HUMAN_INTEGERS,
    *flag_table.NUMBERS,
    *flag_table.SEVERAL,
    *flag_table.STRUCTURES,
    *flag_table.WORDS,
)
_DESTINATIONS = {f"--{name}": name.replace("-", "_") for name in _NAMES}


@dataclass(frozen=True)
class ServeArguments:
    """A parsed `vllm serve MODEL …`. `given` holds the flags that were written, by destination name."""

    model: str
    given: dict[str, Any]

    def value(self, destination: str) -> Any:
        """The value in force: as given, else vLLM's default, else False for a switch and None for other flags."""
        if destination in self.given:
            return self.given[destination]
        if destination in flag_table.DEFAULTS:
            return flag_table.DEFAULTS[destination]
        return False if destination.replace("_", "-") in flag_table.SWITCHES else None

    def non_default(self) -> dict[str, Any]:
        """What the `non-default args` log line shows, in its order; secrets masked as vLLM masks them."""
        changed = {k: v for k, v in sorted(self.given.items()) if v != flag_table.DEFAULTS.get(k)}
        shown = {k: "***" if k in ("api_key", "hf_token") else v for k, v in changed.items()}
        return {"model_tag": self.model, **shown, "model": self.model}

    @property
    def served_names(self) -> tuple[str, ...]:
        return tuple(self.value("served_model_name") or (self.model,))

    @property
    def world_size(self) -> int:
        """GPUs of one engine: tensor times pipeline parallel size."""
        return int(self.value("tensor_parallel_size")) * int(self.value("pipeline_parallel_size"))


def destination_of(flag: str) -> str | None:
    """The destination name of a flag as written (`-tp`, `--no-enable-prefix-caching`, `--max_model_len`), if known."""
    if flag in flag_table.SHORT_FORMS:
        return flag_table.SHORT_FORMS[flag].replace("-", "_")
    dashed = flag.replace("_", "-")
    return _DESTINATIONS.get(dashed) or _DESTINATIONS.get(dashed.replace("--no-", "--", 1))


def parse(argv: list[str]) -> ServeArguments:
    """Parse what follows `serve`; ends the process with code 2 and argparse's text on a wrong command line."""
    words, structures = _gather_dotted([_with_dashes(word) for word in _with_config_file(argv)])
    parser = _build_parser()
    known, unknown = parser.parse_known_args(words)
    if unknown:
        _refuse_unknown(unknown)
    given = {name: value for name, value in vars(known).items() if name not in ("model_tag", "model")}
    for name, parts in structures.items():
        given[name] = {**given.get(name, {}), **parts}
    model = known.model if getattr(known, "model", None) else known.model_tag
    return ServeArguments(model or "Qwen/Qwen3-0.6B", given)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vllm serve", usage="vllm serve [model_tag] [options]")
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model", default=argparse.SUPPRESS)
    short = {name: form for form, name in flag_table.SHORT_FORMS.items()}

    def add(name: str, **options: Any) -> None:
        forms = [f"--{name}"] + ([short[name]] if name in short else [])
        parser.add_argument(*forms, default=argparse.SUPPRESS, **options)

    for name in flag_table.SWITCHES:
        add(name, action=argparse.BooleanOptionalAction)
    for name in flag_table.INTEGERS:
        add(name, type=int)
    for name in flag_table.HUMAN_INTEGERS:
        add(name, type=human_readable_int)
    for name in flag_table.NUMBERS:
        add(name, type=float)
    for name in flag_table.SEVERAL:
        add(name, nargs="+")
    for name in flag_table.STRUCTURES:
        add(name, type=json.loads)
    for name in flag_table.WORDS:
        add(name, choices=flag_table.CHOICES.get(name))
    return parser


def human_readable_int(text: str) -> int:
    """`8192`, `8k` = 8000, `8K` = 8192, `1.5M`; as vLLM reads its length flags. -1 and `auto` mean the model's own."""
    if text == "auto":
        return -1
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgtKMGT])", text)
    return int(float(match[1]) * _MAGNITUDES[match[2]]) if match else int(text)


def _with_dashes(word: str) -> str:
    name, equals, value = word.partition("=")
    if name.startswith("--"):
        stem, dot, rest = name.partition(".")
        return stem.replace("_", "-") + dot + rest + equals + value
    # `-O3` and `-O=3` are written as one word; argparse would read the second as the value "=3".
    return re.sub(r"^-O=?(?=.)", "-O=", word) if re.match(r"^-O=?[^.=]", word) else word


def _gather_dotted(words: list[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    rest: list[str] = []
    structures: dict[str, dict[str, Any]] = {}
    queue = list(words)
    while queue:
        word = queue.pop(0)
        match = re.fullmatch(r"(--?[A-Za-z][\w-]*)\.([\w.-]+)(?:=(.*))?", word, re.DOTALL)
        name = destination_of(match[1]) if match else None
        if match is None or name is None or name.replace("_", "-") not in flag_table.STRUCTURES:
            rest.append(word)
            continue
        value = match[3] if match[3] is not None else queue.pop(0) if queue else ""
        _set_part(structures.setdefault(name, {}), match[2].split("."), value)
    return rest, structures


def _set_part(target: dict[str, Any], path: list[str], text: str) -> None:
    for key in path[:-1]:
        target = target.setdefault(key, {})
    try:
        target[path[-1]] = json.loads(text)
    except ValueError:
        target[path[-1]] = text


def _with_config_file(argv: list[str]) -> list[str]:
    if "--config" not in argv[:-1]:
        return argv
    # Only this flag needs YAML; importing it always would slow every start.
    import yaml

    at = argv.index("--config")
    values = yaml.safe_load(Path(argv[at + 1]).read_text(encoding="utf-8")) or {}
    words: list[str] = []
    for key, value in values.items():
        if key == "model":
            words.insert(0, str(value))
        elif isinstance(value, bool):
            words += [f"--{key}" if value else f"--no-{key}"]
        elif isinstance(value, list):
            words += [f"--{key}", *map(str, value)]
        else:
            words += [f"--{key}", json.dumps(value) if isinstance(value, dict) else str(value)]
    positional = argv[:1] if argv and not argv[0].startswith("-") else []
    rest = argv[len(positional) : at] + argv[at + 2 :]
    return positional + (words[1:] if positional and values.get("model") else words) + rest


def _refuse_unknown(unknown: list[str]) -> NoReturn:
    sys.stderr.write(f"{_TOP_USAGE}vllm: error: unrecognized arguments: {' '.join(unknown)}\n")
    sys.stderr.flush()
    raise SystemExit(2)
