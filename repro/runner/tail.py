"""Reads a growing log from where it was left, in bounded pieces."""

from __future__ import annotations

from pathlib import Path

_PIECE = 1 << 20  # bytes a look; more stays for the next one, so that a flood of log does not stop the watch


class LogTail:
    """`read` gives the bytes that came since the last call, at most a mebibyte; empty while the file is not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = 0

    def read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(self._place)
                piece = file.read(_PIECE)
        except FileNotFoundError:
            return b""
        self._place += len(piece)
        return piece
