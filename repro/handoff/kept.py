"""The request bodies that a session kept: exactly what a trial sent, since its prompts were made for one tokenizer."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.errors import InvalidFile

REQUESTS = "requests"


@dataclass(frozen=True)
class KeptBodies:
    """The bodies in the order they were sent, `at_once` of them in flight together, to `path`.

    `omitted` further ones were sent and not kept.
    """

    path: str
    at_once: int
    bodies: tuple[str, ...]
    omitted: int


def kept_bodies(folder: Path, trial_id: str) -> KeptBodies | None:
    """What `<folder>/requests/<trial id>.json.gz` holds (`trial.keep` writes it); None where there is none."""
    file = folder / REQUESTS / f"{trial_id}.json.gz"
    try:
        kept = json.loads(gzip.decompress(file.read_bytes()))
        bodies = tuple(_text(body) for body in kept["bodies"])
        return KeptBodies(str(kept["path"]), max(1, int(kept["at_once"])), bodies, int(kept["omitted"]))
    except FileNotFoundError:
        return None
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(
            f"{file} is no kept request ({type(error).__name__}: {error})",
            "restore it, or remove it: the bundle is then made without the request",
        ) from error


def _text(body: Any) -> str:
    if not isinstance(body, dict):
        raise TypeError(f"a body is a JSON object, not {type(body).__name__}")
    return json.dumps(body, ensure_ascii=False, sort_keys=True) + "\n"
