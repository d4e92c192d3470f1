"""A container to test with, made in a moment and without a registry: an image of links and /etc alone, the host's
programs mounted read-only.
"""

from __future__ import annotations

import io
import secrets
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from repro.domain.command.container import Container
from repro.domain.command.flag import Flag

ROOT = Path(__file__).parents[2]
# The header of a program for ARM (machine 183 of the ELF standard), which no other processor loads.
_ARM_PROGRAM = (
    b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 2, 183, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0)
)
_FILES = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
    "etc/group": b"root:x:0:\n",
    "etc/nsswitch.conf": b"hosts: files dns\n",
    "etc/not-a-program": b"#!/bin/sh\n",
    "etc/no-interpreter": b"#!/no/such/interpreter\n",
    "etc/arm-program": _ARM_PROGRAM,
}
_EXECUTABLE = ("etc/no-interpreter", "etc/arm-program")


def docker(*words: str, stdin: bytes | None = None) -> str:
    done = subprocess.run(["docker", *words], input=stdin, capture_output=True, timeout=120, check=True)
    return done.stdout.decode().strip()


def no_daemon() -> str | None:
    """Why there is none to test with; None where one answers."""
    try:
        docker("info", "--format", "{{.ID}}")
    except (OSError, subprocess.SubprocessError) as error:
        return f"no Docker daemon answers here: {error}"
    return None


@contextmanager
def thin_image() -> Iterator[str]:
    """The reference of an image that exists as long as this context."""
    reference = f"repro-thin:{secrets.token_hex(4)}"
    docker("import", "-", reference, stdin=_tar())
    try:
        yield reference
    finally:
        docker("rmi", "--force", reference)


def _tar() -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name in ("usr", "etc", "proc", "sys", "dev", "root", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(folder)
        for name in ("bin", "lib", "lib64", "sbin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        for name, content in _FILES.items():
            file = tarfile.TarInfo(name)
            file.size, file.mode = len(content), 0o755 if name in _EXECUTABLE else 0o644
            tar.addfile(file, io.BytesIO(content))
    return held.getvalue()


def mounts(*more: Path) -> tuple[Path, ...]:
    """What a Python of this host needs inside: the system, the interpreter, the environment, this checkout."""
    wanted = (Path("/usr"), Path(sys.base_prefix), Path(sys.prefix), ROOT, *more)
    return tuple(p for p in dict.fromkeys(wanted) if not any(q in p.parents for q in wanted))


def container(image: str, *options: str, mounted: tuple[Path, ...] = (), entry: tuple[str, ...] = ()) -> Container:
    """`docker run` with the mounts and these options, each `--name=value` or `--name`."""
    binds = [f"--volume={path}:{path}:ro" for path in mounts(*mounted)]
    return Container(("docker", "run"), tuple(_flag(text) for text in (*binds, *options)), image, entry)


def _flag(text: str) -> Flag:
    name, equals, value = text.partition("=")
    return Flag(name, name, value if equals else True, tokens=(text,))
