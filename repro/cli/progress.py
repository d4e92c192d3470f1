"""Shows how a launch and a search go on: on a terminal a ladder, else a line an event that stands alone in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from typing_extensions import assert_never

from repro.cli.output import seconds, talk
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.stage import Stage
from repro.domain.trial import Answer, Purpose
from repro.domain.variable import shown
from repro.runner.port import Ended, StageReached, Waiting
from repro.triage.framing import frame
from repro.trial.progress import Event, Note, Observer, TrialFinished, TrialStarted

_VALUE = 40  # characters of a value that stands in a title


@contextmanager
def watching(typical_launches: int | None = None) -> Iterator[Observer]:
    """An observer that shows what it is told on stderr, in the way that suits where stderr goes."""
    if not draws(sys.stderr.isatty(), os.environ):
        yield Lines(talk, typical_launches)
        return
    from repro.cli.ladder import Ladder, stderr_console  # loads rich

    with Ladder(stderr_console(), time.monotonic, typical_launches) as ladder:
        yield ladder


def draws(terminal: bool, environment: Mapping[str, str]) -> bool:
    """Whether a ladder can be redrawn in place."""
    return terminal and environment.get("TERM", "") not in ("", "dumb", "unknown")


class Remaining:
    """About what is left of a search, from its own launches. `typical`: how many launches such a search takes."""

    def __init__(self, typical: int | None) -> None:
        self._typical = typical
        self._launches = 0
        self._launch_seconds: list[float] = []

    def count(self, answer: Answer) -> None:
        self._launches += answer.cost.launches
        if answer.cost.launches == 1:
            self._launch_seconds.append(answer.cost.seconds)

    def words(self) -> str:
        """Empty before the first launch, and once the search takes longer than is typical."""
        left = 0 if self._typical is None else self._typical - self._launches
        if left <= 0 or not self._launch_seconds:
            return ""
        mean = sum(self._launch_seconds) / len(self._launch_seconds)
        return f"about {left} more launch{'' if left == 1 else 'es'}, {seconds(left * mean)}"


class Lines:
    """An observer that says one line for everything a person waits for."""

    def __init__(self, say: Callable[[str], None], typical_launches: int | None = None) -> None:
        self._say = say
        self._remaining = Remaining(typical_launches)

    def told(self, event: Event) -> None:
        match event:
            case Waiting():
                pass
            case TrialStarted(number, _, _, launches):
                where = "new server" if launches else "warm server"
                left = self._remaining.words()
                self._say(f"[{number:3d}] {trial_title(event)} ({where})" + (f", {left}" if left else ""))
            case TrialFinished(_, _, answer, again):
                self._remaining.count(answer)
                more = ", tried again" if again else ""
                cost = seconds(answer.cost.seconds)
                self._say(f"      {outcome_words(answer.outcome)}{requests_words(answer)}, {cost}{more}")
            case StageReached(Stage.SERVING, _):
                pass  # the same moment as api_ready; whether it serves is what the requests tell
            case StageReached(stage, passed):
                self._say(f"      {stage} done after {seconds(passed)}")
            case Ended(ready, reason, passed):
                if not ready:
                    self._say(f"      not ready after {seconds(passed)}: {reason}")
            case Note(text):
                self._say(f"note: {text}")
            case _:
                assert_never(event)


def trial_title(event: TrialStarted) -> str:
    """Why this trial is carried out, with the value that it is about; most reasons say their purpose themselves."""
    purpose = event.trial.purpose
    title = event.reason if event.reason.startswith(purpose.value) else f"{purpose}: {event.reason}"
    match purpose:
        case Purpose.LADDER | Purpose.SET_ASIDE_AGAIN if event.changed:
            return f"{title} = {_short(shown(event.changed[0][1]), _VALUE)}"
        case Purpose.PROOF:
            values = ", ".join(f"{name} = {_short(shown(value), _VALUE)}" for name, value in event.changed)
            return f"{title}: {values or 'the failing side'}"
        case _:
            return title


def outcome_words(outcome: Outcome) -> str:
    """One outcome in words, with what a failure's root is."""
    match outcome:
        case Passed():
            return "passed"
        case Failed(failure):
            # Without what the logger puts before it: the room on one line is for what happened.
            root = frame(failure.root_line).message if failure.root_line else failure.detail
            return f"FAILED {failure.signature}" + (f": {_short(root)}" if root.strip() else "")
        case Unresolved(reason):
            return f"unresolved: {reason}"
        case _:
            assert_never(outcome)


def requests_words(answer: Answer) -> str:
    """How many of the requests were answered as expected; empty where none was sent."""
    return f" ({shown(answer.sent - answer.missed)} of {shown(answer.sent)} requests)" if answer.sent else ""


def _short(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
