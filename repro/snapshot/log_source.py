"""Where the log is read from: a file or a container's log, opened in the first moment of a capture and read at leisure.

A file stays open from then on, so that a rotation by renaming or deleting cannot take it away, and is read up to the
size that it had then. It is read by position, so that several collectors can read one log side by side.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from repro.machine.docker_port import ContainerHistory

CHUNK = 1 << 20  # bytes
_ZEROS = bytes(CHUNK)
_NEAR = 8192  # bytes; no secret is longer


class LogSource(Protocol):
    """One log. `size` in bytes when the capture began, None where nobody knows it before having read it."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int | None: ...

    def chunks(self, begin: int = 0) -> Iterator[bytes]:
        """Its bytes from `begin` on, up to what was there when the capture began. LookupError, OSError, ReproError."""
        ...


class FileLog:
    """A log file. One that cannot be opened is told of when it is read, since it costs the log alone."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.size: int | None = None
        self._error: OSError | LookupError | None = None
        self._descriptor: int | None = None
        try:
            # Without O_NONBLOCK opening a named pipe would wait for a writer.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            status = os.fstat(self._descriptor)
        except OSError as error:
            self._error = error
            return
        if stat.S_ISREG(status.st_mode):
            self.size = status.st_size
        else:
            self._error = LookupError(f"{path} is not a regular file")

    def chunks(self, begin: int = 0) -> Iterator[bytes]:
        if self._error is not None:
            raise self._error
        if self._descriptor is None or self.size is None:
            raise LookupError(f"{self.name} was closed")
        at = begin
        while at < self.size:
            wanted = min(CHUNK, self.size - at)
            # A log that was truncated under its writer begins with a hole, which may be larger than the disk.
            hole = wanted == CHUNK and _is_hole(self._descriptor, at)
            chunk = _ZEROS if hole else os.pread(self._descriptor, wanted, at)
            if not chunk:
                return
            at += len(chunk)
            yield chunk

    def close(self) -> None:
        """No more reading; also done when the object goes."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        self.close()


class ContainerLog:
    """What a container has printed, standard output and error together, as the daemon kept it."""

    size: int | None = None

    def __init__(self, docker: ContainerHistory, container: str, name: str) -> None:
        self.name = f"container {name}"
        self._docker, self._container = docker, container

    def chunks(self, begin: int = 0) -> Iterator[bytes]:
        skip = begin
        for chunk in self._docker.log(self._container):
            if skip < len(chunk):
                yield chunk[skip:]
            skip = max(0, skip - len(chunk))


def _is_hole(descriptor: int, at: int) -> bool:
    """Whether the next CHUNK bytes were never written, so that they read as zeros; False where nobody tells."""
    seek_data = getattr(os, "SEEK_DATA", None)
    if seek_data is None:
        return False
    try:
        return os.lseek(descriptor, at, seek_data) >= at + CHUNK
    except OSError as error:  # a hole up to the end, unless the file has become shorter than `at`
        return error.errno == errno.ENXIO and os.fstat(descriptor).st_size >= at + CHUNK


def lines_of(chunks: Iterator[bytes], longest: int = CHUNK) -> Iterator[bytes]:
    """The lines with their ends; one longer than `longest` bytes comes in parts, so that memory stays constant."""
    rest = b""
    for chunk in chunks:
        lines = _split(rest + chunk)
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        yield from lines
        while len(rest) >= longest:
            at = _good_place(rest, longest)
            yield rest[:at]
            rest = rest[at:]
    if rest:
        yield rest


def numbered(chunks: Iterator[bytes], longest: int = CHUNK) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, from 1; the parts of a long line share theirs."""
    number = 1
    for part in lines_of(chunks, longest):
        yield number, part
        number += part.endswith(b"\n")


def _good_place(line: bytes, longest: int) -> int:
    """Where to cut a line: behind a comma or a blank near the end, so that no word (a secret) falls in two."""
    begin = max(1, longest - _NEAR)
    return (line.rfind(b",", begin, longest) + 1) or (line.rfind(b" ", begin, longest) + 1) or longest


def _split(text: bytes) -> list[bytes]:
    """At line feeds alone: `grep -n` counts them, and a progress bar's carriage returns belong to its line."""
    pieces = text.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
