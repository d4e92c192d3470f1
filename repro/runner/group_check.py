"""Whether the ranks of a launch can form a group at all, without vLLM: each rank a small program of its own."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.machine.subprocesses import Completed, run
from repro.runner import group_program

REACH, ALL_REDUCE = "reach", "all_reduce"
_SPARE_S = 10.0


@dataclass(frozen=True)
class Rank:
    """Where one rank runs: the words before its program (a namespace's) and its environment."""

    words: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Checked:
    """`passed` is None where it could not be tested; `said` is then why, else the first failing rank's own words."""

    passed: bool | None
    said: str = ""
    rank: int | None = None
    backend: str = ""


def check_group(step: str, interpreter: Path, ranks: Sequence[Rank], address: str) -> Checked:
    """All ranks at once, with the server's own Python. Raises MissingProgram when that is not there."""
    source = Path(group_program.__file__).read_text(encoding="utf-8")
    port = _free_port()

    def one(rank: int) -> Completed:
        place = ranks[rank]
        told = [step, str(rank), str(len(ranks)), address, str(port)]
        argv = [*place.words, str(interpreter), "-B", "-c", source, *told]
        return run(argv, group_program.PATIENCE_S[step] + _SPARE_S, env=place.environment, cwd=Path("/"))

    with ThreadPoolExecutor(len(ranks)) as pool:
        return judged(list(pool.map(one, range(len(ranks)))))


def judged(ended: Sequence[Completed]) -> Checked:
    """What the ranks' programs came to. The rank that failed soonest is the first; the others waited for it."""
    told = [_told(each) for each in ended]
    backend = next((str(each["backend"]) for each in told if each.get("backend")), "")
    untested = next((each for each in told if each.get("ok", False) is None), None)
    if untested is not None:
        return Checked(None, str(untested["error"]), backend=backend)
    failed = [rank for rank, each in enumerate(told) if not each.get("ok")]
    if not failed:
        return Checked(True, backend=backend)
    first = min(failed, key=lambda rank: ended[rank].seconds)
    said = told[first].get("error") or _last_words(ended[first])
    return Checked(False, " ".join(str(said).split())[:500], first, backend)


def _told(ended: Completed) -> dict[str, Any]:
    lines = [line for line in ended.stdout.splitlines() if line.startswith(group_program.MARK)]
    return {key: value for line in lines for key, value in json.loads(line[len(group_program.MARK) :]).items()}


def _last_words(ended: Completed) -> str:
    lines = ended.stderr.strip().splitlines()
    said = f"; it said: {lines[-1]}" if lines else ""
    return f"it ended with code {ended.code} and no result after {ended.seconds:.0f} s{said}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
