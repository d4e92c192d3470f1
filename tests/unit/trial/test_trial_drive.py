"""The driver over a simulated world: kills at every moment, budgets, interrupts, a journal that cannot be written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from repro.bisect import SearchOptions, search
from repro.domain.finding import ResultKind, SearchResult
from repro.domain.outcome import Outcome, Unresolved
from repro.domain.trial import Purpose, Trial
from repro.domain.variable import Kind, Variable
from repro.errors import Interrupted, JournalNotWritten, SceneMoved, SessionDiverged
from repro.session.codec import result_to_json
from repro.session.journal import Event, Journal
from repro.trial.drive import Driver, Limits
from repro.trial.progress import Event as Told
from repro.trial.progress import Note, TrialFinished, TrialStarted
from tests.fakes.clock import FakeClock
from tests.fakes.searched_world import FP8, INPUT, LAUNCH_S, VARIABLES, WorldCarrier

PRECISION = SearchOptions(0.2)
UNLIMITED = Limits()


@dataclass
class Listener:
    events: list[Told] = field(default_factory=list)

    def told(self, event: Told) -> None:
        self.events.append(event)


@dataclass
class Session:
    """One journal file and everything that was done with it, over any number of runs."""

    path: Path
    listener: Listener = field(default_factory=Listener)
    projected: list[int] = field(default_factory=list)

    def run(
        self,
        carrier: WorldCarrier | None = None,
        limits: Limits = UNLIMITED,
        variables: tuple[Variable, ...] = VARIABLES,
        project: Callable[[Sequence[Event]], str | None] | None = None,
    ) -> SearchResult:
        journal = Journal(self.path, FakeClock())
        projection = project or (lambda events: self.projected.append(len(events)))
        try:
            driver = Driver(carrier or WorldCarrier(), journal, projection, FakeClock(), self.listener, limits)
            return driver.run(search(variables, PRECISION))
        finally:
            journal.close()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e["event"] == kind]

    @property
    def finished(self) -> list[str]:
        return [e["answer"]["trial"] for e in self.of("finished")]


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of searches are journaled here; that every event is synced is the journal's own test."""
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path / "journal.jsonl")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """A search that nobody disturbed."""
    session = Session(tmp_path_factory.mktemp("whole") / "journal.jsonl")
    assert session.run().kind is ResultKind.FOUND
    return session


def asked(session: Session) -> list[Any]:
    return [e["trials"] for e in session.of("ask")]


def result(session: Session) -> dict[str, Any]:
    last = dict(session.of("result")[-1])
    return {key: value for key, value in last.items() if key not in ("n", "at", "event")}


def test_the_undisturbed_search_meets_a_foreign_error_and_finds_the_cause(whole: Session) -> None:
    """What the tests below compare with is worth comparing with."""
    document = result(whole)
    assert [v["name"] for v in document["findings"][0]["variables"]] == ["input_tokens", "prefix_caching"]
    assert [s["variable"] for s in document["set_aside"]] == ["--kv-cache-dtype"]
    assert len(whole.finished) == len(set(whole.finished)) > 20


def test_a_kill_after_any_event_loses_nothing_and_repeats_only_the_running_trial(
    whole: Session, tmp_path: Path
) -> None:
    lines = whole.path.read_text().splitlines(keepends=True)
    for kept in range(len(lines) + 1):
        again = Session(tmp_path / f"{kept}.jsonl")
        again.path.write_text("".join(lines[:kept]))
        done = again.finished
        carrier = WorldCarrier()
        found = again.run(carrier)
        assert result_to_json(found) == result(whole), kept
        assert asked(again) == asked(whole), kept
        assert sorted(done + carrier.carried) == sorted(whole.finished), kept
        started = [e["trial"] for e in again.of("started")]
        twice = {trial for trial in started if started.count(trial) > 1}
        running = {json.loads(line)["trial"] for line in lines[kept - 1 : kept] if '"started"' in line}
        assert twice == running, kept


def test_a_kill_in_the_middle_of_a_line_forgets_that_event_alone(whole: Session, tmp_path: Path) -> None:
    data = whole.path.read_bytes()
    for cut in range(1, len(data), 997):
        again = Session(tmp_path / f"{cut}.jsonl")
        again.path.write_bytes(data[:cut])
        assert result_to_json(again.run()) == result(whole), cut
        assert asked(again) == asked(whole), cut


def test_a_resume_of_a_finished_search_carries_nothing_out(whole: Session, tmp_path: Path) -> None:
    again = Session(tmp_path / "again.jsonl")
    again.path.write_text(whole.path.read_text())
    carrier = WorldCarrier()
    assert result_to_json(again.run(carrier)) == result(whole)
    assert carrier.carried == []
    assert not [e for e in again.listener.events if isinstance(e, TrialStarted)]


def test_trials_are_numbered_on_after_a_resume(whole: Session, tmp_path: Path) -> None:
    again = Session(tmp_path / "again.jsonl")
    lines = whole.path.read_text().splitlines(keepends=True)
    upto = next(n for n, line in enumerate(lines) if '"finished"' in line and '"ladder"' not in line) + 1
    again.path.write_text("".join(lines[:upto]))
    again.run()
    numbers = [e.number for e in again.listener.events if isinstance(e, TrialStarted)]
    assert numbers == list(range(2, len(whole.finished) + 1))


def test_a_journal_of_another_scenario_is_refused_with_both_trials_named(whole: Session, tmp_path: Path) -> None:
    again = Session(tmp_path / "other.jsonl")
    again.path.write_text(whole.path.read_text())
    carrier = WorldCarrier()
    other = (INPUT, FP8, Variable("--max-num-seqs", Kind.LAUNCH, None, "64"))
    with pytest.raises(SessionDiverged) as seen:
        again.run(carrier, variables=other)
    before = whole.of("ask")[0]["trials"][0]["id"]
    assert before in seen.value.message
    assert seen.value.message.count("-0") == 2, "the trial of the journal and that of the search"
    assert seen.value.exit_code == 125
    assert (carrier.carried, carrier.closed) == ([], 1)
    assert again.path.read_text() == whole.path.read_text(), "nothing was added to a journal that is not ours"


def unresolved_times(count: int, purpose: Purpose = Purpose.LADDER) -> Callable[[Trial], Outcome | None]:
    """The first `count` tries of the first trial with this purpose cannot be judged."""
    seen: list[str] = []

    def before(trial: Trial) -> Outcome | None:
        if trial.purpose is not purpose or len(seen) >= count or (seen and trial.id != seen[0]):
            return None
        seen.append(trial.id)
        return Unresolved("another job took the GPUs")

    return before


def test_an_unresolved_try_is_repeated_journaled_and_counted(whole: Session, session: Session) -> None:
    found = session.run(WorldCarrier(unresolved_times(2)))
    assert result_to_json(found) == result(whole)
    tried = session.of("tried")
    assert [(e["attempt"], e["reason"]) for e in tried] == [
        (1, "another job took the GPUs"),
        (2, "another job took the GPUs"),
    ]
    (finished,) = [e for e in session.of("finished") if e["answer"]["trial"] == tried[0]["trial"]]
    assert [e["attempt"] for e in session.of("started") if e["trial"] == tried[0]["trial"]] == [1, 2, 3]
    assert finished["answer"]["outcome"] == "passed"
    assert finished["answer"]["seconds"] == 3.0, "three tries on the warm server"
    again = [e for e in session.listener.events if isinstance(e, TrialFinished) and e.again]
    assert len(again) == 2


def test_tries_are_limited_and_the_search_is_told(session: Session) -> None:
    found = session.run(WorldCarrier(unresolved_times(99, Purpose.PRODUCTION_END)), Limits(tries=4))
    assert found.kind is ResultKind.INCONCLUSIVE
    assert "another job took the GPUs" in found.note
    (finished,) = session.of("finished")
    assert finished["answer"]["launches"] == 4
    assert finished["answer"]["seconds"] == 4 * LAUNCH_S


def test_an_unresolved_try_is_not_repeated_beyond_the_budget(session: Session) -> None:
    carrier = WorldCarrier(unresolved_times(99, Purpose.PRODUCTION_END))
    assert session.run(carrier, Limits(launches=2, tries=5)).kind is ResultKind.INCONCLUSIVE
    assert carrier.launches == 2
    assert session.finished == [], "a larger budget tries it again"
    again = WorldCarrier()
    session.run(again, Limits(launches=3))
    assert again.launches == 1, "what the tries have cost is not forgotten"
    assert session.of("finished")[0]["answer"]["launches"] == 3


@pytest.mark.parametrize("budget", range(1, 15))
def test_a_launch_budget_is_never_exceeded_and_a_larger_one_goes_on(
    whole: Session, session: Session, budget: int
) -> None:
    first = WorldCarrier()
    weaker = session.run(first, Limits(launches=budget))
    assert first.launches <= budget
    assert first.closed == 1
    if weaker.kind is ResultKind.INCONCLUSIVE:
        assert f"the budget of {budget} launches" in weaker.note
        assert weaker.still_possible
        assert len(session.of("stopped")) == 1
    second = WorldCarrier()
    assert result_to_json(session.run(second)) == result(whole)
    assert asked(session) == asked(whole)
    assert sorted(first.carried + second.carried) == sorted(whole.finished)


def test_a_launch_budget_counts_what_was_spent_before_the_resume(session: Session) -> None:
    session.run(limits=Limits(launches=3))
    carrier = WorldCarrier()
    assert session.run(carrier, Limits(launches=3)).kind is ResultKind.INCONCLUSIVE
    assert carrier.carried == []


def test_crashes_on_the_warm_server_do_not_exceed_the_launch_budget(session: Session) -> None:
    """Four repetitions on a warm server launch nothing, unless the server dies in one of them."""
    tries: list[str] = []

    def before(trial: Trial) -> Outcome | None:
        if trial.purpose is Purpose.MINIMAL_END:
            tries.append(trial.id)
            carrier.running = None
        return None

    class Forgetful(WorldCarrier):
        def needs_launch(self, trial: Trial) -> bool:
            return super().needs_launch(trial) or (trial.purpose is Purpose.MINIMAL_END and len(tries) > 1)

    carrier = Forgetful(before)
    found = session.run(carrier, Limits(launches=4))
    assert carrier.launches == 4
    assert found.kind is ResultKind.INCONCLUSIVE
    assert "4 launches" in found.note


def test_a_time_budget_ends_before_the_next_trial(session: Session) -> None:
    carrier = WorldCarrier()
    found = session.run(carrier, Limits(seconds=2 * LAUNCH_S))
    assert found.kind is ResultKind.INCONCLUSIVE
    assert "200 s" in found.note
    assert carrier.launches == 2
    assert session.of("stopped")[0]["reason"] == found.note.removeprefix("ended before its time: ")


def interrupt_at(number: int) -> Callable[[Trial], Outcome | None]:
    tries: list[str] = []

    def before(trial: Trial) -> Outcome | None:
        tries.append(trial.id)
        if len(tries) == number:
            raise KeyboardInterrupt
        return None

    return before


@pytest.mark.parametrize("number", [1, 2, 9])
def test_an_interrupt_closes_the_carrier_and_leaves_a_session_to_go_on_with(
    whole: Session, session: Session, number: int
) -> None:
    carrier = WorldCarrier(interrupt_at(number))
    with pytest.raises(Interrupted) as seen:
        session.run(carrier)
    assert seen.value.exit_code == 130
    assert "--resume" in seen.value.hint
    assert carrier.closed == 1
    assert session.events[-1]["event"] == "interrupted"
    assert session.of("result") == []
    assert len(session.finished) == number - 1
    assert result_to_json(session.run()) == result(whole)


def test_an_interrupt_while_the_last_server_is_stopped_is_told_as_one(whole: Session, session: Session) -> None:
    class Slow(WorldCarrier):
        def close(self) -> None:
            super().close()
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        session.run(Slow())
    carrier = WorldCarrier()
    assert result_to_json(session.run(carrier)) == result(whole)
    assert carrier.carried == [], "all trials were finished already"


def test_an_unwritable_journal_ends_the_search_and_no_server_stays(whole: Session, session: Session) -> None:
    class FullDisk(Journal):
        def append(self, event: str, **facts: Any) -> Event:
            if len(self.events) == 12:
                raise JournalNotWritten("the disk is full", "free space")
            return super().append(event, **facts)

    carrier, journal = WorldCarrier(), FullDisk(session.path, FakeClock())
    driver = Driver(carrier, journal, lambda _events: None, FakeClock(), session.listener, Limits())
    with pytest.raises(JournalNotWritten):
        driver.run(search(VARIABLES, PRECISION))
    journal.close()
    assert (carrier.closed, carrier.running) == (1, None)
    assert result_to_json(session.run()) == result(whole)


def test_a_moved_scene_ends_the_session_without_an_answer(session: Session) -> None:
    def before(trial: Trial) -> Outcome | None:
        if trial.purpose is Purpose.LADDER:
            raise SceneMoved("model.digest was a and is b")
        return None

    carrier = WorldCarrier(before)
    with pytest.raises(SceneMoved):
        session.run(carrier)
    assert carrier.closed == 1
    assert session.events[-1]["event"] == "started"


def test_the_history_is_written_after_every_trial_and_its_problem_told_once(session: Session) -> None:
    session.run(project=lambda _events: "git was not found")
    notes = [e.text for e in session.listener.events if isinstance(e, Note)]
    assert notes == ["git was not found"]
    again = Session(session.path)
    again.run()
    assert again.projected == [len(session.events)], "a resume makes the history again"


def test_what_happens_is_told_in_order(session: Session) -> None:
    session.run()
    started = [e for e in session.listener.events if isinstance(e, TrialStarted)]
    finished = [e for e in session.listener.events if isinstance(e, TrialFinished)]
    assert [e.trial.id for e in started] == [e.trial.id for e in finished] == session.finished
    assert [e.number for e in started] == list(range(1, len(started) + 1))
    ladder = [e for e in started if e.trial.purpose is Purpose.LADDER]
    assert [e.changed for e in ladder[:2]] == [(("input_tokens", 60000),), (("--kv-cache-dtype", "fp8"),)]
    assert [e.launches for e in started] == [e.answer.cost.launches == 1 for e in finished]
