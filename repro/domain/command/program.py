"""Finds where vLLM starts in a row of words: what stands in front of it (launchers, variables), and the program
itself.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from repro.domain.command.container import CLIENTS, after_run
from repro.domain.command.shell_words import ASSIGNMENT
from repro.errors import NotVllm, ReproError, UnresolvedWrapper

SHELLS = ("bash", "sh", "zsh", "dash", "ash", "ksh")
SHELL_BUILTINS = ("exec", "command", "builtin", "time")

_LAUNCHERS = frozenset(
    "exec command builtin time nohup sudo doas env numactl taskset nice ionice chrt setsid stdbuf unbuffer timeout "
    "srun mpirun mpiexec torchrun uv uvx pixi poetry pipenv conda mamba micromamba nsys ncu strace ltrace catchsegv "
    "tini dumb-init gosu su-exec runuser ray systemd-run firejail apptainer singularity prlimit flock".split()
)
_TAKES_PAIRS = ("env", "sudo", "doas")
_PYTHON = re.compile(r"(python|pypy)[\d.]*$")
_PYTHON_VALUES = ("-X", "-W", "--check-hash-based-pycs")
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_SERVE_MODULES = ("vllm", "vllm.entrypoints.cli.main", "vllm.scripts", "repro.simulator")
_MODULE_FILES = tuple("/" + module.replace(".", "/") + ".py" for module in _MODULES)
_OTHER_STARTERS = frozenset(
    "make just task bazel systemctl sbatch salloc kubectl helm docker-compose supervisord supervisorctl "
    "if then else elif for while until do case function {".split()
)

HINT = (
    "Expected `vllm serve MODEL …`, `python -m vllm.entrypoints.openai.api_server …` or `docker run … IMAGE …`; "
    "a server that runs already can be given with --pid or --container."
)
WRAPPER_HINT = (
    "Give the vllm command itself, --pid or --container of the running server, "
    'or the log with its "non-default args" line.'
)


@dataclass(frozen=True)
class Start:
    """Where vLLM (or a shell, or a container client) starts. `kind` is "vllm", "shell" or "container"; `at` is the
    index of its first word, `end` the index behind the program's last word; `pairs` were written in front,
    `launcher` too. `pairs_at` is the place in the launcher where pairs must stay (`sudo`, `env -i`), None where
    they may stand first.
    """

    kind: str
    at: int
    end: int
    launcher: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    pairs_at: int | None


def find_start(words: Sequence[str]) -> Start | None:
    """Look for vLLM, a shell with -c or a container client behind any launchers; None where there is none."""
    launcher: list[str] = []
    pairs: list[tuple[str, str]] = []
    pairs_at: int | None = None
    takes_pairs = True
    for at, word in enumerate(words):
        kind, length = _starts(words, at)
        if kind:
            return Start(kind, at, at + length, tuple(launcher), tuple(pairs), pairs_at)
        assignment = ASSIGNMENT.fullmatch(word)
        if assignment and takes_pairs:
            pairs.append((assignment[1], assignment[2]))
            continue
        name = posixpath.basename(word)
        if name in _LAUNCHERS:
            takes_pairs = name in _TAKES_PAIRS
        elif not launcher:
            return None
        launcher.append(word)
        if takes_pairs:
            pairs_at = len(launcher)
    return None


def not_started(words: Sequence[str]) -> ReproError:
    """The error for words in which no vLLM was found: a wrapper that cannot be looked into, or something else
    altogether.
    """
    shown = " ".join(words)[:80]
    rest = [w for w in words if not ASSIGNMENT.fullmatch(w) and posixpath.basename(w) not in _LAUNCHERS]
    head = posixpath.basename(next((w for w in rest if not w.startswith("-")), ""))
    if head == "vllm":
        return NotVllm(f"`{shown}` does not start a vLLM server.", HINT)
    module = words[list(words).index("-m") + 1 :][:1] if "-m" in words and _PYTHON.match(head) else ()
    if module:
        return NotVllm(f"`{shown}` starts the module {module[0]}, not a vLLM server.", HINT)
    is_script = head.endswith((".sh", ".bash", ".zsh", ".py")) or any(w.startswith("./") for w in rest[:1])
    if is_script or head in (*SHELLS, *CLIENTS, *_OTHER_STARTERS, "source", ".") or _PYTHON.match(head):
        return UnresolvedWrapper(
            f"`{shown}` starts something whose vLLM arguments are not seen from here.", WRAPPER_HINT
        )
    return NotVllm(f"`{shown}` does not start a vLLM server." if words else "The command is empty.", HINT)


def _starts(words: Sequence[str], at: int) -> tuple[str, int]:
    """What starts at `at` ("" for nothing), and how many words belong to it."""
    name = posixpath.basename(words[at])
    if name == "vllm" and at + 1 < len(words) and words[at + 1] == "serve":
        return "vllm", 2
    if _PYTHON.match(name):
        end = _python_end(words, at + 1)
        return ("vllm", end - at) if end else ("", 0)
    if name in SHELLS:
        end = _shell_end(words, at + 1)
        return ("shell", end - at) if end else ("", 0)
    if name in CLIENTS and after_run(words[at:]) is not None:
        return "container", 1
    return "", 0


def _python_end(words: Sequence[str], at: int) -> int | None:
    """The index behind `-m MODULE [serve]` or `SCRIPT [serve]` when that is vLLM."""
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "--"):
        at += 2 if words[at] in _PYTHON_VALUES else 1
    by_module = at < len(words) and words[at] == "-m"
    at += 1 if by_module else 0
    if at >= len(words):
        return None
    word = words[at]
    serves = at + 1 < len(words) and words[at + 1] == "serve"
    if by_module:
        if word in _MODULES:
            return at + 1
        return at + 2 if word in _SERVE_MODULES and serves else None
    if word.endswith(_MODULE_FILES):
        return at + 1
    return at + 2 if posixpath.basename(word) == "vllm" and serves else None


def _shell_end(words: Sequence[str], at: int) -> int | None:
    """The index of the text behind `-c`, `-lc`, `-euo pipefail -c`."""
    while at < len(words) and words[at].startswith(("-", "+")):
        letters = words[at] if not words[at].startswith("--") else ""
        if "c" in letters:
            return at + 1 if at + 1 < len(words) else None
        at += 2 if letters.endswith("o") else 1
    return None
