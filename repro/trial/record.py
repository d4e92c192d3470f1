"""What a session's journal already holds, handed out again in order, so that a search can be fed from it."""

from __future__ import annotations

from collections.abc import Iterable

from repro.domain.trial import Answer, Ask, Cost
from repro.errors import SessionDiverged
from repro.session.codec import answer_from_json, ask_to_json, cost_from_json
from repro.session.journal import Event


class Recorded:
    """The asks of a journal in their order and the answers that were finished."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._asks: list[Event] = []
        self._answers: dict[str, Answer] = {}
        self._tried: dict[str, Cost] = {}
        for event in events:
            if event["event"] == "ask":
                self._asks.append(event)
            elif event["event"] == "finished":
                answer = answer_from_json(event["answer"])
                self._answers[answer.trial_id] = answer
                self._tried.pop(answer.trial_id, None)  # its answer's cost holds them
            elif event["event"] == "tried":
                self._tried[event["trial"]] = summed(self.tried(event["trial"]), cost_from_json(event))
        self._next = 0

    def knows(self, ask: Ask) -> bool:
        """Whether the next recorded ask is this one; False when the record is used up.

        Raises SessionDiverged at the first difference: the journal was then written by another search.
        """
        if self._next >= len(self._asks):
            return False
        recorded, wanted = self._asks[self._next], ask_to_json(ask)
        if recorded["trials"] != wanted["trials"]:
            before = ", ".join(t["id"] for t in recorded["trials"])
            now = ", ".join(t["id"] for t in wanted["trials"])
            raise SessionDiverged(
                f"ask {self._next + 1} of this session was for {before} and is now for {now} ({ask.reason})",
                "the session was written by another version of repro or its scenario was changed: begin a new search",
            )
        self._next += 1
        return True

    def answer(self, trial_id: str) -> Answer | None:
        """The recorded answer of a trial, if it was finished."""
        return self._answers.get(trial_id)

    def tried(self, trial_id: str) -> Cost:
        """What the unresolved tries of a trial have cost that has no answer yet."""
        return self._tried.get(trial_id, Cost())

    @property
    def spent(self) -> Cost:
        """What everything on record has cost."""
        return summed(*(a.cost for a in self._answers.values()), *self._tried.values())


def summed(*costs: Cost) -> Cost:
    """All of them together."""
    return Cost(sum(c.launches for c in costs), sum(c.seconds for c in costs))
