"""The request bodies that a session kept: exactly what a trial sent, since its prompts were made for one tokenizer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.errors import InvalidFile

REQUESTS = "requests"


@dataclass(frozen=True)
class KeptRequests:
    """The bodies in the order they were sent, `at_once` of them in flight together, to `path`."""

    path: str
    at_once: int
    bodies: tuple[str, ...]


def kept_requests(folder: Path, trial_id: str) -> KeptRequests | None:
    """What `<folder>/requests/<trial id>.json` holds; None where the session kept nothing for this trial."""
    file = folder / REQUESTS / f"{trial_id}.json"
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        return KeptRequests(str(kept["path"]), max(1, int(kept["at_once"])), tuple(_text(b) for b in kept["bodies"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(
            f"{file} is no kept request ({type(error).__name__}: {error})",
            "restore it, or remove it: the bundle is then made without the request",
        ) from error


def _text(body: Any) -> str:
    if not isinstance(body, dict):
        raise TypeError(f"a body is a JSON object, not {type(body).__name__}")
    return json.dumps(body, ensure_ascii=False, sort_keys=True) + "\n"
