"""Does a log tell anything new? A server that waits for a peer may warn of it every second for half an hour.

A line that differs from earlier ones in digits alone is no news: not the tenth try to connect, and not the tenth step
of a progress bar either, but loading does not go on without CPU time or bytes read, which are looked at beside.
"""

from __future__ import annotations

_VARYING = b"0123456789abcdefABCDEF"
# A start prints a few thousand kinds of lines; what comes after so many is taken for news once more.
_MOST_SHAPES = 20_000
_MOST_LINES = 2_000  # of one look: a flood holds the same few shapes all along


class Novelty:
    """`tells` takes pieces of a log as they come; lines that two pieces share are looked at in halves."""

    def __init__(self) -> None:
        self._shapes: set[int] = set()

    def tells(self, piece: bytes) -> bool:
        """Whether a line of this piece has a shape that was not seen before."""
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        found = {hash(line.translate(None, _VARYING)) for line in piece.split(b"\n", _MOST_LINES)[:_MOST_LINES]}
        news = not found <= self._shapes
        self._shapes |= found
        return news
