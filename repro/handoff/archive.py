"""One gzip tar from a folder, same files same bytes; checksums; and the last look for secrets before it is written."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Iterator
from itertools import tee
from pathlib import Path

from repro.errors import InvalidFile, SecretFound
from repro.redact.redactor import Redactor
from repro.redact.shapes import MASK

SUMS = "SHA256SUMS"
_EXECUTABLE = ".sh"


def names_in(folder: Path) -> list[str]:
    """Every file below the folder, by its path there, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def write_sums(folder: Path) -> None:
    """SHA256SUMS over every other file, as `sha256sum -c` reads it."""
    lines = [f"{sha256(folder / name)}  {name}\n" for name in names_in(folder) if name != SUMS]
    (folder / SUMS).write_text("".join(lines), encoding="utf-8")


def refuse_secrets(folder: Path, redactor: Redactor) -> None:
    """Raises SecretFound for the first line in which the redactor would still mask something."""
    for name in names_in(folder):
        for number, line, masked in _looked_at(folder / name, redactor):
            if line != masked:
                rule = _rule(line, masked)
                raise SecretFound(
                    f"{name}, line {number}, holds a secret (rule {rule}); no bundle was written",
                    "mask it in the session's own file (journal.jsonl, requests/, logs/), then bundle again",
                )


def _looked_at(path: Path, redactor: Redactor) -> Iterator[tuple[int, str, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace", newline="\n") as file:
        raw, read = tee(file)
        for number, (line, masked) in enumerate(zip(raw, redactor.lines(read), strict=True), 1):
            yield number, line, masked


def _rule(line: str, masked: str) -> str:
    before = set(MASK.findall(line))
    new = next((mask for mask in MASK.findall(masked) if mask not in before), "***masked:unknown:0***")
    return str(new).split(":")[1]


def write_archive(folder: Path, top: str, target: Path, at: int) -> None:
    """Packs the folder's files below `top`, all with the time `at` (Unix seconds).

    Never overwrites, and on an error nothing of the target stays.
    """
    try:
        out = target.open("xb")
    except FileExistsError:
        raise InvalidFile(f"{target} is there already", "name another file with -o; nothing is overwritten") from None
    except OSError as error:
        raise InvalidFile(f"{target} cannot be written: {error.strerror}", "name another file with -o") from error
    try:
        with out, gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
            _pack(folder, top, packed, at)
    except BaseException as error:
        target.unlink()
        if isinstance(error, OSError):
            raise InvalidFile(f"{target} cannot be written: {error.strerror}", "free space, then again") from error
        raise


def _pack(folder: Path, top: str, packed: gzip.GzipFile, at: int) -> None:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in names_in(folder):
            path = folder / name
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size = path.stat().st_size
            entry.mtime = at
            entry.mode = 0o755 if path.suffix == _EXECUTABLE else 0o644
            with path.open("rb") as file:
                tar.addfile(entry, file)
