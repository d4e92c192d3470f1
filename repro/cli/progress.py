"""Shows how a launch and a search go on: a line an event, in words that stand alone in a log file."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import assert_never

from repro.cli.output import seconds
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.stage import Stage
from repro.domain.trial import Answer
from repro.domain.variable import shown
from repro.runner.port import Ended, StageReached, Waiting
from repro.trial.progress import Asked, Event, Note, TrialFinished, TrialStarted


class Lines:
    """An observer that says one line for everything a person waits for. `most` is the plan's bound on launches."""

    def __init__(self, say: Callable[[str], None], typical_launches: int | None = None) -> None:
        self._say = say
        self._typical = typical_launches
        self._launches = 0
        self._launch_seconds: list[float] = []

    def told(self, event: Event) -> None:
        match event:
            case Asked():
                pass
            case TrialStarted(number, trial, reason, launches):
                where = "new server" if launches else "warm server"
                self._say(f"[{number:3d}] {trial.purpose}: {reason} ({where}){self._left()}")
            case TrialFinished(_, _, answer, again):
                self._count(answer)
                more = ", tried again" if again else ""
                cost = f"{seconds(answer.cost.seconds)}"
                self._say(f"      {outcome_words(answer.outcome)}{_of(answer)}, {cost}{more}")
            case StageReached(Stage.SERVING, _):
                pass  # the same moment as api_ready; whether it serves is what the requests tell
            case StageReached(stage, passed):
                self._say(f"      {stage} done after {seconds(passed)}")
            case Ended(ready, reason, passed):
                if not ready:
                    self._say(f"      not ready after {seconds(passed)}: {reason}")
            case Waiting():
                pass
            case Note(text):
                self._say(f"note: {text}")
            case _:
                assert_never(event)

    def _count(self, answer: Answer) -> None:
        self._launches += answer.cost.launches
        if answer.cost.launches == 1:
            self._launch_seconds.append(answer.cost.seconds)

    def _left(self) -> str:
        """About what is left, from this session's own launches; nothing before the first."""
        if self._typical is None or not self._launch_seconds:
            return ""
        left = self._typical - self._launches
        if left <= 0:
            return ""
        mean = sum(self._launch_seconds) / len(self._launch_seconds)
        return f", about {left} more launches, {seconds(left * mean)}"


def outcome_words(outcome: Outcome) -> str:
    """One outcome in words, with what a failure's root is."""
    match outcome:
        case Passed():
            return "passed"
        case Failed(failure):
            root = (failure.root_line or failure.detail).strip()
            return f"FAILED {failure.signature}" + (f": {_short(root)}" if root else "")
        case Unresolved(reason):
            return f"unresolved: {reason}"
        case _:
            assert_never(outcome)


def _of(answer: Answer) -> str:
    return f" ({shown(answer.sent - answer.missed)} of {shown(answer.sent)} requests)" if answer.sent else ""


def _short(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
