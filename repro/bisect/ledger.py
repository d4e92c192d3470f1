"""Every answer of a search in one place, and the one gate through which every trial is asked.

The gate keeps three promises: a configuration that was answered is not tried again unless a repetition is wanted, a
`Stop` ends the search wherever it stands, and two answers that contradict each other never pass unnoticed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from repro.domain.failure import Signature
from repro.domain.finding import Tally
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.trial import Answer, Ask, Fresh, Purpose, Reply, Stop, Trial
from repro.domain.variable import Configuration

Asking: TypeAlias = Generator[Ask, Reply, Answer]


class Stopped(Exception):
    """The driver sent `Stop`; unwinds to the top of the search, which returns what it has."""


class Contradiction(Exception):
    """One configuration both passed and failed; unwinds to the top of the search."""


@dataclass
class Ledger:
    """Answers by configuration, in the order they came; `first_id` names the first trial of each."""

    answers: dict[Configuration, list[Answer]] = field(default_factory=dict)
    asked: dict[Configuration, int] = field(default_factory=dict)
    first_id: dict[Configuration, str] = field(default_factory=dict)

    def consider(self, configuration: Configuration, parent: str | None, purpose: Purpose, reason: str) -> Asking:
        """The answer that is known for this configuration, or else that of one new trial on any server."""
        known = self.answers.get(configuration)
        if known and not isinstance(known[-1].outcome, Unresolved):
            return known[-1]
        answer = yield from self.repeat(configuration, parent, purpose, reason)
        return answer

    def repeat(
        self, configuration: Configuration, parent: str | None, purpose: Purpose, reason: str, fresh: Fresh = Fresh.ANY
    ) -> Asking:
        """The answer of one new trial, whatever is known already."""
        answers = yield from self.ask([(configuration, parent)], purpose, reason, fresh)
        return answers[0]

    def ask(
        self,
        pairs: Iterable[tuple[Configuration, str | None]],
        purpose: Purpose,
        reason: str,
        fresh: Fresh = Fresh.ANY,
    ) -> Generator[Ask, Reply, tuple[Answer, ...]]:
        """One new trial for each (configuration, parent); raises `Stopped` or `Contradiction`."""
        trials = tuple(self._trial(configuration, parent, purpose, fresh) for configuration, parent in pairs)
        reply = yield Ask(trials, reason)
        if isinstance(reply, Stop):
            raise Stopped(reply.reason)
        if tuple(a.trial_id for a in reply) != tuple(t.id for t in trials):
            raise ValueError("the driver must answer every trial of an ask, in the ask's order")
        for trial, answer in zip(trials, reply, strict=True):
            self.answers.setdefault(trial.configuration, []).append(answer)
        for trial in trials:
            self._check(trial.configuration)
        return reply

    def _trial(self, configuration: Configuration, parent: str | None, purpose: Purpose, fresh: Fresh) -> Trial:
        repetition = self.asked.get(configuration, 0)
        self.asked[configuration] = repetition + 1
        trial = Trial(configuration, repetition, parent, purpose, fresh)
        self.first_id.setdefault(configuration, trial.id)
        return trial

    def _check(self, configuration: Configuration) -> None:
        passed, of = self.passes(configuration)
        if 0 < passed < of:
            raise Contradiction(describe_contradiction(self.answers[configuration]))

    def passes(self, configuration: Configuration) -> tuple[int, int]:
        """How many of this configuration's resolved answers passed, out of how many."""
        outcomes = [a.outcome for a in self.answers.get(configuration, ())]
        return (
            sum(isinstance(o, Passed) for o in outcomes),
            sum(not isinstance(o, Unresolved) for o in outcomes),
        )

    def tally_passed(self, configurations: Iterable[Configuration]) -> Tally:
        """Passes out of all resolved answers to these configurations."""
        pairs = [self.passes(c) for c in dict.fromkeys(configurations)]
        return Tally(sum(p for p, _ in pairs), sum(n for _, n in pairs))

    def tally_target(self, configurations: Iterable[Configuration], target: frozenset[Signature]) -> Tally:
        """Answers that showed the target out of all resolved answers to these configurations."""
        outcomes = [a.outcome for c in dict.fromkeys(configurations) for a in self.answers.get(c, ())]
        resolved = [o for o in outcomes if not isinstance(o, Unresolved)]
        return Tally(sum(shows(o, target) for o in resolved), len(resolved))


def shows(outcome: Outcome, target: frozenset[Signature]) -> bool:
    """Whether this outcome is a failure with one of the target's signatures."""
    return isinstance(outcome, Failed) and outcome.failure.signature in target


def describe_contradiction(answers: list[Answer]) -> str:
    """One sentence: how often it passed and failed, and on which servers, since history is the usual reason."""
    passed = [a for a in answers if isinstance(a.outcome, Passed)]
    failed = [a for a in answers if isinstance(a.outcome, Failed)]

    def served(group: list[Answer]) -> str:
        numbers = sorted({a.server.served_before for a in group if a.server is not None})
        return "no server" if not numbers else "servers that had served " + ", ".join(map(str, numbers)) + " requests"

    return (
        f"one configuration (trial {answers[0].trial_id}) passed {len(passed)} and failed {len(failed)} of "
        f"{len(passed) + len(failed)} times: it passed on {served(passed)} and failed on {served(failed)}"
    )
