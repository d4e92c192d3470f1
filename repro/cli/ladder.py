"""Progress on a terminal: finished trials scroll away as one line each, the running launch stays below as a ladder.

Imported only when stderr is a terminal, since it loads rich; everywhere else `progress.Lines` says a line an event.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from typing_extensions import assert_never

from repro.cli.output import seconds
from repro.cli.progress import Remaining, outcome_words, requests_words, trial_title
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.stage import STARTUP_ORDER, Stage
from repro.domain.trial import Answer
from repro.runner.port import Ended, StageReached, Waiting
from repro.trial.progress import Event, Note, TrialFinished, TrialStarted

_A_SECOND = 4.0
# (done, running, not yet, failed, unresolved), for terminals that can show them and for those that cannot.
_MARKS = ("✓", "▸", "·", "✗", "?")
_PLAIN_MARKS = ("+", ">", ".", "x", "?")


def stderr_console() -> Console:
    """The terminal in front of the user; NO_COLOR is rich's own habit."""
    return Console(file=sys.stderr, highlight=False)


class Ladder:
    """An observer and a context: the ladder is on the screen inside of it. `clock` gives monotonic seconds."""

    def __init__(self, console: Console, clock: Callable[[], float], typical_launches: int | None = None) -> None:
        self._console = console
        self._clock = clock
        self._remaining = Remaining(typical_launches)
        self._marks = _PLAIN_MARKS if console.options.ascii_only else _MARKS
        self._started: TrialStarted | None = None
        self._begun = 0.0
        self._done: dict[Stage, float] = {}
        self._ready = False
        self._waiting = ""
        self._live = Live(
            console=console,
            get_renderable=self.view,
            refresh_per_second=_A_SECOND,
            transient=True,
            redirect_stdout=False,
        )

    def __enter__(self) -> Ladder:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started = None
        self._live.stop()

    def told(self, event: Event) -> None:
        match event:
            case StageReached(Stage.SERVING, _):
                pass
            case TrialStarted():
                self._started, self._begun = event, self._clock()
                self._done, self._ready, self._waiting = {}, not event.launches, ""
            case StageReached(stage, passed):
                self._done[stage] = passed
            case Waiting(reason, _):
                self._waiting = reason
            case Ended(ready, reason, _):
                self._ready, self._waiting = ready, "" if ready else reason
            case TrialFinished(number, _, answer, again):
                self._remaining.count(answer)
                self._console.print(self._line(number, answer, again), no_wrap=True, overflow="ellipsis")
            case Note(text):
                self._console.print(Text(f"note: {text}", "yellow"))
            case _:
                assert_never(event)
        self._live.refresh()

    def _line(self, number: int, answer: Answer, again: bool) -> Text:
        """One finished trial on one line of the terminal."""
        mark, style = self._outcome_mark(answer.outcome)
        title = trial_title(self._started) if self._started is not None else ""
        said = outcome_words(answer.outcome) + requests_words(answer) + (", tried again" if again else "")
        line = Text()
        line.append(f"{mark} ", style).append(f"[{number:3d}] ", "dim").append(f"{title}  ")
        return line.append(f"{seconds(answer.cost.seconds)}  ", "dim").append(said, style)

    def _outcome_mark(self, outcome: Outcome) -> tuple[str, str]:
        done, _, _, failed, unresolved = self._marks
        match outcome:
            case Passed():
                return done, "green"
            case Failed():
                return failed, "red"
            case Unresolved():
                return unresolved, "yellow"
            case _:
                assert_never(outcome)

    def view(self) -> Group:
        """What stands below the finished trials now; empty between two of them."""
        if self._started is None:
            return Group()
        title = Text(f"[{self._started.number:3d}] {trial_title(self._started)}", "bold", no_wrap=True)
        where = "new server" if self._started.launches else "warm server"
        head = title.append(f"  {where}, {seconds(self._clock() - self._begun)}", "dim")
        parts: list[RenderableType] = [head, self._stages()]
        if self._waiting:
            parts.append(Text(f"      {self._waiting}", "dim", no_wrap=True, overflow="ellipsis"))
        if left := self._remaining.words():
            parts.append(Text(f"      {left}", "dim"))
        return Group(*parts)

    def _stages(self) -> Table:
        """The seven stages in time order: done and how long it took, running and for how long, or not yet."""
        table = Table.grid(padding=(0, 2))
        before = 0.0
        running = self._running()
        now = self._clock() - self._begun
        for stage in STARTUP_ORDER:
            done, runs, not_yet, _, _ = self._marks
            if stage is running:
                table.add_row(f"      {runs}", Text(stage.value, "bold cyan"), seconds(max(0.0, now - before)))
            elif stage in self._done:
                passed = self._done[stage]
                table.add_row(f"      {done}", Text(stage.value, "green"), seconds(max(0.0, passed - before)))
                before = max(before, passed)
            elif self._ready:
                table.add_row(f"      {done}", Text(stage.value, "green"), "")
            else:
                table.add_row(f"      {not_yet}", Text(stage.value, "dim"), "")
        return table

    def _running(self) -> Stage:
        """The first stage that is not proven done; serving once the server is ready."""
        if self._ready:
            return Stage.SERVING
        last = max((stage.position for stage in self._done), default=-1)
        return STARTUP_ORDER[min(last + 1, len(STARTUP_ORDER) - 1)]
