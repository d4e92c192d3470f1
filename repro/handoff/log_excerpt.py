"""Parts of a kept log, in constant memory: the lines around the root, and a copy that is cut when it is too long."""

from __future__ import annotations

import gzip
import re
import shutil
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro.errors import InvalidFile
from repro.triage.lines import LineSplitter

BEFORE, AFTER = 30, 60
# Of a longer log (uncompressed) the bundle holds its last part: start-up and failure of a vLLM take under 1 MB.
LOG_LIMIT = 16 * 1024 * 1024
_CHUNK = 1 << 18
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class Excerpt:
    """Lines of a log as (number from 1, text); `root` is the number of the root line, None where no line tells."""

    lines: tuple[tuple[int, str], ...]
    root: int | None

    def around(self, before: int, after: int) -> Excerpt:
        """Fewer lines around the root; without one, the last of them."""
        if self.root is None:
            return Excerpt(self.lines[-(before + after + 1) :], None)
        return Excerpt(tuple((n, t) for n, t in self.lines if -before <= n - self.root <= after), self.root)

    def text(self, widest: int | None = None) -> str:
        """With line numbers, the root line marked by `>`; lines cut to `widest` characters."""
        return "".join(f"{'>' if n == self.root else ' '}{n:7d}  {_cut(text, widest)}\n" for n, text in self.lines)


def excerpt(log: Path, root: int | None, before: int = BEFORE, after: int = AFTER) -> Excerpt:
    """The lines around line `root` of a kept log; without a root the last `before + after + 1` lines."""
    kept: deque[tuple[int, str]] = deque(maxlen=before + after + 1)
    splitter = LineSplitter()

    def lines() -> Iterator[tuple[int, bytes]]:
        for chunk in _chunks(log):
            yield from splitter.feed(chunk)
        yield from splitter.finish()

    for number, raw in lines():
        if root is not None and number > root + after:
            break
        if root is None or number >= root - before:
            kept.append((number, plain(raw.decode("utf-8", "replace"))))
    return Excerpt(tuple(kept), root)


def _cut(text: str, widest: int | None) -> str:
    return text if widest is None or len(text) <= widest else f"{text[:widest]} [...]"


def plain(text: str) -> str:
    """One line without colours and other control characters, for a file that people open in a viewer."""
    return _CONTROL.sub("", text)


def copy_log(log: Path, target: Path, limit: int = LOG_LIMIT) -> int:
    """Copies a kept log; of one longer than `limit` bytes only the end, behind a line that says so.

    Returns how many lines were left out.
    """
    tail, dropped, lines = bytearray(), 0, 0
    for chunk in _chunks(log):
        tail += chunk
        if len(tail) > 2 * limit:
            cut = len(tail) - limit
            lines += tail.count(b"\n", 0, cut)
            dropped += cut
            del tail[:cut]
    if not dropped and len(tail) <= limit:
        shutil.copyfile(log, target)
        return 0
    # Up to a whole line; where a single line is longer than the limit, it is cut in the middle.
    start = max(0, len(tail) - limit)
    cut = tail.find(b"\n", start) + 1 or start
    lines += tail.count(b"\n", 0, cut)
    with target.open("wb") as out, gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as packed:
        packed.write(b"[repro] lines 1 to %d are left out; the next line is line %d\n" % (lines, lines + 1))
        packed.write(tail[cut:])
    return lines


def _chunks(log: Path) -> Iterator[bytes]:
    try:
        with gzip.open(log, "rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidFile(f"{log} cannot be read: {error}", "restore the session's logs, then bundle again") from error
