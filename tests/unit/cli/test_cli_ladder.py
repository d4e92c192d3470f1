"""What a person sees while a search runs: the ladder on a terminal, lines everywhere else."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from rich.console import Console

from repro.cli.ladder import Ladder
from repro.cli.progress import Lines, draws
from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.stage import Stage
from repro.domain.trial import Answer, Cost, Purpose, Trial
from repro.domain.variable import Configuration, Value
from repro.runner.port import Ended, StageReached, Waiting
from repro.trial.progress import Event, Note, TrialFinished, TrialStarted
from tests.fakes.clock import FakeClock

ROOT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate [2.0] GiB on GPU 0"
LOGGED = f"(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1512] {ROOT}"
OOM = Failed(Failure(Stage.WEIGHT_ACCESS, Family.OOM_GPU, root_line=LOGGED))
TRIAL = Trial(Configuration.of({"input_tokens": 214}), 0, None, Purpose.THRESHOLD)


def started(number: int = 9, launches: bool = True) -> TrialStarted:
    return TrialStarted(number, TRIAL, "input_tokens = 214", launches)


def finished(outcome: Outcome, launches: int = 1, seconds: float = 30.0, again: bool = False) -> TrialFinished:
    answer = Answer(TRIAL.id, outcome, missed=0, sent=4, cost=Cost(launches, seconds))
    return TrialFinished(9, TRIAL, answer, again)


class Screen:
    """A terminal of 100 columns whose ladder can be looked at in any moment."""

    def __init__(self, typical: int | None = 6, encoding: str = "utf-8") -> None:
        self.file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
        self.console = Console(file=self.file, force_terminal=True, width=100, color_system="standard")
        self.clock = FakeClock()
        self.ladder = Ladder(self.console, self.clock.monotonic, typical)

    def tell(self, *events: Event) -> None:
        for event in events:
            self.ladder.told(event)

    def view(self) -> str:
        console = Console(file=io.StringIO(), width=100, record=True)
        console.print(self.ladder.view())
        return console.export_text()

    @property
    def scrolled(self) -> list[str]:
        """What was printed above the ladder, without colours and cursor moves."""
        buffer = self.file.buffer
        assert isinstance(buffer, io.BytesIO)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", buffer.getvalue().decode(self.file.encoding))
        return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


@pytest.fixture
def screen() -> Screen:
    return Screen()


def test_the_running_launch_shows_all_seven_stages_with_their_seconds(screen: Screen) -> None:
    screen.tell(started(), StageReached(Stage.CONTAINER_INIT, 2.0), StageReached(Stage.DEVICE_RECOGNITION, 5.5))
    screen.clock.sleep(9.5)
    lines = screen.view().splitlines()
    assert lines[0].startswith("[  9] threshold: input_tokens = 214  new server, 9.5 s")
    rows = [line.split() for line in lines[1:8]]
    assert rows == [
        ["✓", "container_init", "2.0", "s"],
        ["✓", "device_recognition", "3.5", "s"],
        ["▸", "comm_group", "4.0", "s"],
        ["·", "weight_access"],
        ["·", "engine_init"],
        ["·", "api_ready"],
        ["·", "serving"],
    ]


def test_a_ready_server_is_serving_and_why_it_waits_is_gone(screen: Screen) -> None:
    screen.tell(started(), Waiting("/health: refused", 1.0))
    assert "/health: refused" in screen.view()
    screen.tell(StageReached(Stage.API_READY, 40.0), StageReached(Stage.SERVING, 40.0), Ended(True, "ready", 40.0))
    screen.clock.sleep(42.0)
    view = screen.view()
    assert "refused" not in view
    assert re.search(r"▸ +serving +2\.0 s", view)
    assert "·" not in view


def test_a_warm_server_is_serving_at_once(screen: Screen) -> None:
    screen.tell(started(launches=False))
    view = screen.view()
    assert "warm server" in view
    assert re.search(r"▸ +serving +0\.0 s", view)


def test_a_finished_trial_scrolls_away_as_one_line(screen: Screen) -> None:
    screen.tell(started(), finished(OOM))
    (line,) = screen.scrolled
    assert line.startswith("✗ [  9] threshold: input_tokens = 214  30 s  FAILED weight_access/oom_gpu: torch.Out")
    assert len(line) <= 100


@pytest.mark.parametrize(
    ("outcome", "mark", "words"),
    [(Passed(), "✓", "passed (4 of 4 requests)"), (Unresolved("no [GPU]"), "?", "unresolved: no [GPU]")],
)
def test_an_outcome_is_told_in_words_and_by_a_mark(screen: Screen, outcome: Outcome, mark: str, words: str) -> None:
    screen.tell(started(), finished(outcome))
    (line,) = screen.scrolled
    assert line.startswith(mark)
    assert words in line, "square brackets of a log are no markup"


def test_what_is_left_comes_from_the_launches_so_far(screen: Screen) -> None:
    screen.tell(started())
    assert "about" not in screen.view()
    screen.tell(finished(Passed(), seconds=20.0), started(), finished(Passed(), seconds=40.0), started())
    assert "about 4 more launches, 2 min 00 s" in screen.view()
    for _ in range(3):
        screen.tell(finished(Passed(), seconds=30.0), started())
    assert "about 1 more launch, 30 s" in screen.view()
    screen.tell(finished(Passed()), finished(Passed()), started())
    assert "about" not in screen.view(), "longer than usual: nobody knows"


def test_a_warm_trial_does_not_count_as_a_launch(screen: Screen) -> None:
    screen.tell(started(), finished(Passed(), seconds=20.0), started(), finished(Passed(), launches=0, seconds=1.0))
    screen.tell(started())
    assert "about 5 more launches, 1 min 40 s" in screen.view()


def test_a_new_launch_begins_with_an_empty_ladder(screen: Screen) -> None:
    screen.tell(started(), StageReached(Stage.CONTAINER_INIT, 2.0), Ended(False, "it ended", 3.0), finished(OOM))
    screen.tell(started(10))
    assert "✓" not in screen.view()
    assert "it ended" not in screen.view()


def test_nothing_stands_below_when_it_is_over(screen: Screen) -> None:
    with screen.ladder:
        screen.tell(started(), Note("git was not found"), finished(Passed()))
    assert screen.view() == ""
    assert "note: git was not found" in screen.scrolled
    screen.tell(finished(Passed()))


def test_a_terminal_without_unicode_gets_plain_marks() -> None:
    screen = Screen(encoding="ascii")
    screen.tell(started(), StageReached(Stage.CONTAINER_INIT, 2.0))
    assert [line.split()[0] for line in screen.view().splitlines()[1:4]] == ["+", ">", "."]


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    screen.console = Console(file=screen.file, force_terminal=True, width=100)
    screen.ladder = Ladder(screen.console, screen.clock.monotonic)
    screen.tell(started(), finished(OOM))
    buffer = screen.file.buffer
    assert isinstance(buffer, io.BytesIO)
    assert not re.search(rb"\x1b\[[0-9;]*3[0-9]m", buffer.getvalue()), "no colour of the foreground"


@pytest.mark.parametrize(
    ("terminal", "term", "ladder"),
    [(True, "xterm-256color", True), (True, "dumb", False), (True, "", False), (False, "xterm", False)],
)
def test_a_ladder_is_drawn_on_terminals_alone(terminal: bool, term: str, ladder: bool) -> None:
    assert draws(terminal, {"TERM": term} if term else {}) is ladder


def said(*events: Event) -> list[str]:
    lines: list[str] = []
    say: Callable[[str], None] = lines.append
    observer = Lines(say, 3)
    for event in events:
        observer.told(event)
    return lines


def test_lines_stand_alone_in_a_log() -> None:
    assert said(
        started(), StageReached(Stage.COMM_GROUP, 4.0), Ended(False, "the server ended", 5.0), finished(OOM)
    ) == [
        "[  9] threshold: input_tokens = 214 (new server)",
        "      comm_group done after 4.0 s",
        "      not ready after 5.0 s: the server ended",
        f"      FAILED weight_access/oom_gpu: {ROOT} (4 of 4 requests), 30 s",
    ]


def test_lines_tell_a_second_try_and_what_is_left() -> None:
    lines = said(started(), finished(Unresolved("busy"), again=True), started(), finished(Passed()), started())
    assert lines[1] == "      unresolved: busy (4 of 4 requests), 30 s, tried again"
    assert lines[2].endswith("(new server), about 2 more launches, 1 min 00 s")
    assert lines[4].endswith("(new server), about 1 more launch, 30 s")


@pytest.mark.parametrize(
    ("purpose", "reason", "changed", "title"),
    [
        (Purpose.MINIMAL_END, "minimal end, fresh server", (), "minimal end, fresh server"),
        (Purpose.REDUCE, "without --dtype", (("--dtype", None),), "reduce: without --dtype"),
        (Purpose.LADDER, "stable/0 + x", (("x", 60000),), "ladder: stable/0 + x = 60,000"),
        (Purpose.LADDER, "stable/0 + --c", (("--c", "z" * 99),), "ladder: stable/0 + --c = " + "z" * 39 + "…"),
        (Purpose.THRESHOLD, "x = 214", (("x", 214),), "threshold: x = 214"),
        (Purpose.PROOF, "proof of x", (("x", False),), "proof of x: x = off"),
        (Purpose.PROOF, "proof of x", (), "proof of x: the failing side"),
    ],
)
def test_a_title_says_purpose_and_value_once(
    purpose: Purpose, reason: str, changed: tuple[tuple[str, Value], ...], title: str
) -> None:
    trial = Trial(TRIAL.configuration, 0, None, purpose)
    assert said(TrialStarted(1, trial, reason, True, changed)) == [f"[  1] {title} (new server)"]


def test_help_loads_neither_rich_nor_anything_else_that_is_heavy() -> None:
    code = (
        "import sys\nfrom repro.cli.main import run\nrun(['bisect', '--help'])\n"
        "print('loaded', sorted({'rich', 'pydantic', 'httpx', 'git', 'docker'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert "--input-tokens" in done.stdout
    assert done.stdout.endswith("loaded []\n"), done.stderr
