"""Cuts a byte stream into lines with a bound on memory: an unfinished last line is kept, an endless one is cut.

Line numbers count `\\n` only, as `grep -n` does; a carriage return stays in the line.
"""

from __future__ import annotations

from collections.abc import Iterator

KEEP_PER_LINE = 64 * 1024  # bytes; a root line of vLLM is under 10 KB even with its dump of a whole configuration


class LineSplitter:
    """`feed` gives finished lines as (number from 1, bytes without the line feed); `finish` gives a cut last one."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._number = 0

    def block(self, chunk: bytes) -> tuple[int, list[bytes]]:
        """All lines that `chunk` finishes, and the number of the first of them."""
        pieces = chunk.split(b"\n")
        self._keep(pieces[0])
        if len(pieces) == 1:
            return self._number + 1, []
        first = self._number + 1
        last = pieces.pop()
        pieces[0] = self._take()
        if max(map(len, pieces)) > KEEP_PER_LINE:
            pieces = [piece if len(piece) <= KEEP_PER_LINE else piece[:KEEP_PER_LINE] for piece in pieces]
        self._number += len(pieces)
        self._keep(last)
        return first, pieces

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        first, lines = self.block(chunk)
        return enumerate(lines, first)

    def finish(self) -> Iterator[tuple[int, bytes]]:
        if self._rest_size:
            self._number += 1
            yield self._number, self._take()

    def _keep(self, piece: bytes) -> None:
        room = KEEP_PER_LINE - self._rest_size
        if room > 0 and piece:
            kept = piece[:room]
            self._rest.append(kept)
            self._rest_size += len(kept)

    def _take(self) -> bytes:
        line = b"".join(self._rest)
        self._rest, self._rest_size = [], 0
        return line
