"""The journal: one JSON object a line, on disk before anything else happens. It is the only truth of a session.

A line counts once it ends in a newline; what a crash or a full disk left behind it is cut off before the next one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from repro.errors import InvalidFile, JournalNotWritten

Event = Mapping[str, Any]


class Now(Protocol):
    """Whoever tells the time in Unix seconds."""

    def now(self) -> float: ...


class Journal:
    """Appends events to `path`."""

    def __init__(self, path: Path, clock: Now) -> None:
        self.path = path
        self._clock = clock
        events, self._before = read(path) if path.exists() else ([], 0)
        # An event of this run with the file's size after it: one list, so that Ctrl-C in any moment finds both or none.
        self._written: list[tuple[Event, int]] = []
        self._earlier = events
        self._descriptor = self._open(self._before)

    @property
    def events(self) -> list[Event]:
        """All that are on disk, in order."""
        return [*self._earlier, *(event for event, _ in self._written)]

    def _open(self, size: int) -> int:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.ftruncate(descriptor, size)
        except OSError as error:
            raise self._failed(error) from error
        return descriptor

    def append(self, event: str, **facts: Any) -> Event:
        """Writes and fsyncs one event; raises JournalNotWritten, leaving every earlier event whole."""
        number = len(self._earlier) + len(self._written)
        record = {"n": number, "at": round(self._clock.now(), 3), "event": event, **facts}
        whole = line = (json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
        size = self._written[-1][1] if self._written else self._before
        try:
            # What a full disk or an interrupt left of an event that was never counted goes first.
            os.ftruncate(self._descriptor, size)
            # Unbuffered on purpose: what a full disk refuses must not come out later.
            while line:
                line = line[os.write(self._descriptor, line) :]
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, size)
            raise self._failed(error) from error
        self._written.append((record, size + len(whole)))
        return record

    def close(self) -> None:
        os.close(self._descriptor)

    def _failed(self, error: OSError) -> JournalNotWritten:
        return JournalNotWritten(
            f"the journal {self.path} cannot be written: {error.strerror or error}; the server was stopped",
            "free space or permissions, then `repro bisect --resume`: everything up to the last finished trial is kept",
        )


def read(path: Path) -> tuple[list[Event], int]:
    """(events, bytes they take). An unfinished last line is left out; a broken line before it raises InvalidFile."""
    events: list[Event] = []
    size = 0
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidFile(f"{path}: {error.strerror or error}", "name an existing session") from error
    for number, line in enumerate(data.split(b"\n")[:-1], 1):
        try:
            event = json.loads(line)
            if not isinstance(event, dict) or event.get("n") != number - 1:
                raise ValueError("not event number " + str(number - 1))
        except ValueError as error:
            raise InvalidFile(
                f"{path}, line {number}: no journal event ({error})",
                "the file was changed by something else; restore it from a backup or start a new search",
            ) from error
        events.append(event)
        size += len(line) + 1
    return events, size
