"""One rank of a launch as the watch sees it: its log, what its log tells so far, when that was first told, its end.

A server that is one process or container is the one rank of its launch, with rank None.
"""

from __future__ import annotations

from repro.runner.novelty import Novelty
from repro.runner.port import Server
from repro.runner.tail import LogTail
from repro.triage import Diagnosis, ExitEvidence, Triage


class RankLog:
    """`triage` must have been fed nothing yet; `rank` counts from 0, None where there is but one.

    `told_news` says whether the last look found a line of a new kind.
    """

    def __init__(self, rank: int | None, server: Server, triage: Triage) -> None:
        self.rank = rank
        self.server = server
        self.diagnosis = triage.diagnose()
        self.evidence: ExitEvidence | None = None
        self.told_at: float | None = None
        self._triage = triage
        self._tail = LogTail(server.log)
        self._finished = False
        self._novelty = Novelty()
        self.told_news = False

    def look(self, now: float) -> bool:
        """Feed what the log has grown by; whether it has."""
        self.told_news = False
        grown = False
        while piece := self._tail.read():
            grown = True
            self.told_news = self._novelty.tells(piece) or self.told_news
            self._triage.feed(piece)
        if grown:
            self._take(self._triage.diagnose(), now)
        return grown

    def has_ended(self, now: float) -> bool:
        """Whether its server has ended, as far as is known by now; a rank that has ended has told its part."""
        if self.evidence is None:
            self.evidence = self.server.exit_evidence()
            if self.evidence is not None and self.told_at is None:
                self.told_at = now
        return self.evidence is not None

    def judged(self, stalled: bool = False) -> Diagnosis:
        """The answer with all that is known from outside. `stalled`: it is to be judged as a start that goes no
        further, though it still runs.
        """
        if self.evidence is not None and not self._finished:
            self._triage.finish()
            self._finished = True
        evidence = ExitEvidence() if stalled and self.evidence is None else self.evidence
        return self._triage.diagnose(evidence)

    def _take(self, diagnosis: Diagnosis, now: float) -> None:
        self.diagnosis = diagnosis
        if self.told_at is None and diagnosis.certain and diagnosis.failure() is not None:
            self.told_at = now
