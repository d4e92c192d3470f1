"""Versions as the server's own Python sees them, asked of that Python: on this host, or inside the container.

For a container that has ended the same question is put to a throw-away container of the same image id, but only when
the caller wants it (`--inside`): it is the one thing in a snapshot that starts something.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from repro.domain.fingerprint import Fact
from repro.machine.containers import argv_of, environment_of
from repro.machine.docker_port import Aside, Docker, Ran
from repro.machine.subprocesses import run
from repro.snapshot import inside_program
from repro.snapshot.collector import Context
from repro.snapshot.libraries import find_environment

ASK_S = 60.0  # importing PyTorch from a cold disk takes half of it
_SPARE_S = 5.0
_TORCH = ("cuda", "nccl", "gpus")
_PYTHONS = ("python3", "python")
_RENAMED = "VLLM::"  # vLLM's processes overwrite their argument list with such a name


class InsideCollector:
    """One run of `inside_program`; what only PyTorch could tell is lost alone when it cannot be imported in time."""

    name = "inside"
    fields = (
        "interpreter",
        "python",
        "vllm",
        "torch",
        "cuda",
        "nccl",
        "nccl_package",
        "gpus",
        "packages",
        "packages_sha256",
        "build",
    )

    def __init__(self, ask_s: float = ASK_S) -> None:
        self._ask_s = ask_s
        self.deadline = ask_s + 2 * _SPARE_S

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`gpus` counts the devices that it sees; `build` holds the image's VLLM_BUILD_… variables."""
        ran, where = self._ask(context)
        lines = [
            line[len(inside_program.MARK) :] for line in ran.output.splitlines() if line.startswith(inside_program.MARK)
        ]
        told: dict[str, Any] = {}
        for line in lines:
            told |= json.loads(line)
        if not told:
            said = " ".join(ran.output.split())[-200:] or "nothing"
            raise LookupError(f"{where} gave no answer (exit code {ran.code}); it said: {context.redactor.text(said)}")
        why = self._why_not(told, ran)
        return {
            name: Fact.measured(context.redactor.json(told[name]), where)
            if told.get(name) not in (None, "")
            else Fact.unavailable(why.get(name, f"{where} does not have it"))
            for name in self.fields
        }

    def _why_not(self, told: Mapping[str, Any], ran: Ran) -> dict[str, str]:
        if "torch_error" in told:
            return dict.fromkeys(_TORCH, f"PyTorch cannot be imported there: {told['torch_error']}")
        if "cuda" not in told:
            return dict.fromkeys(_TORCH, f"PyTorch was not imported within {self._ask_s:g} s (exit code {ran.code})")
        built = "this PyTorch is built without CUDA and ROCm"
        return {} if told.get("cuda") or told.get("hip") else dict.fromkeys(_TORCH, built)

    def _ask(self, context: Context) -> tuple[Ran, str]:
        container, docker = context.container, context.docker
        if container is not None and docker is not None:
            if container["State"].get("Running"):
                return self._in_container(docker, container, context), "the container's Python"
            if not context.inside:
                raise LookupError(
                    "the container has ended; --inside asks a throw-away container of the same image (no GPU)"
                )
            return self._aside(docker, container), "a throw-away container of the same image"
        if elsewhere := context.elsewhere():
            raise LookupError(elsewhere)
        argv = context.server_argv()
        if not argv:
            raise LookupError("no process, container or command was named")
        return self._on_host(argv, context), "the server's interpreter"

    def _on_host(self, argv: Sequence[str], context: Context) -> Ran:
        environment = context.server_environment()
        interpreter = host_interpreter(argv, environment)
        env = {**environment, "REPRO_INSIDE_S": f"{self._ask_s:.0f}"}
        asked = [*as_owner(context.pid, context.root), str(interpreter), *_program()]
        done = run(asked, self._ask_s, env=env, cwd=Path("/"))
        return Ran(done.code, done.stdout + "\n" + done.stderr)

    def _in_container(self, docker: Docker, container: Mapping[str, Any], context: Context) -> Ran:
        argv = context.server_argv()
        if not argv or not PurePath(argv[0]).name.startswith("python"):
            argv = argv_of(container)  # renamed, or replaced by another program
        ran = Ran(None, "")
        for python in _pythons(argv):
            environment = ("env", f"REPRO_INSIDE_S={self._ask_s:.0f}")
            ran = docker.execute(
                container["Id"], [*environment, python, *_program(), *argv[:1]], self._ask_s + _SPARE_S
            )
            if inside_program.MARK in ran.output:
                break
        return ran

    def _aside(self, docker: Docker, container: Mapping[str, Any]) -> Ran:
        argv = argv_of(container)
        environment = [f"{k}={v}" for k, v in environment_of(container).items() if k in ("PATH", "PYTHONPATH")]
        ran = Ran(None, "")
        for python in _pythons(argv):
            aside = Aside(
                image_id=container["Image"],
                argv=(python, *_program(), *argv[:1]),
                label=secrets.token_hex(8),
                binds=tuple(_read_only(container)),
                environment=(*environment, f"REPRO_INSIDE_S={self._ask_s:.0f}"),
            )
            ran = docker.run_aside(aside, self._ask_s)
            if inside_program.MARK in ran.output:
                break
        return ran


def host_interpreter(argv: Sequence[str], environment: Mapping[str, str]) -> Path:
    """The Python that runs this argument list on this host. Raises LookupError with the reason."""
    name = PurePath(argv[0]).name
    if name.startswith("python") and "/" in argv[0]:
        return Path(argv[0])
    if argv[0].startswith(_RENAMED):
        raise LookupError(f"the process has renamed itself to {argv[0]}; name its parent")
    return find_environment(argv, environment).interpreter


def _program() -> list[str]:
    source = Path(inside_program.__file__).read_text(encoding="utf-8")
    return ["-B", "-c", source]


def _pythons(argv: Sequence[str]) -> tuple[str, ...]:
    """What may be the interpreter inside a container, likeliest first."""
    own = (argv[0],) if argv and PurePath(argv[0]).name.startswith("python") else ()
    return tuple(dict.fromkeys((*own, *_PYTHONS)))


def as_owner(pid: int | None, root: Path) -> list[str]:
    """The words that make root ask as the user of the process: what belongs to others is not run with more rights."""
    if pid is None or os.geteuid() != 0:
        return []
    status = (root / "proc" / str(pid)).stat()
    if status.st_uid == 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise LookupError(f"the process belongs to user {status.st_uid}; run repro as that user")
    return [setpriv, f"--reuid={status.st_uid}", f"--regid={status.st_gid}", "--clear-groups", "--"]


def _read_only(container: Mapping[str, Any]) -> list[str]:
    """The container's own mounts, read-only, since its packages may lie there; never the daemon's socket."""
    return [
        f"{mount.get('Name') if mount.get('Type') == 'volume' else mount['Source']}:{mount['Destination']}:ro"
        for mount in container.get("Mounts") or ()
        if mount.get("Type") in ("bind", "volume") and not str(mount.get("Source", "")).endswith(".sock")
    ]
