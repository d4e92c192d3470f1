"""What triage answers: the first failing stage, its cause line, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from repro.domain.failure import Failure, Family
from repro.domain.stage import Stage
from repro.triage.progress import Reached


@dataclass(frozen=True)
class ExitEvidence:
    """What was seen from outside. `code` None: still running. `oom_killed` None: not known."""

    code: int | None = None
    signal: int | None = None
    oom_killed: bool | None = None
    stopped_by_us: bool = False

    @property
    def running(self) -> bool:
        return self.code is None and self.signal is None


@dataclass(frozen=True)
class Diagnosis:
    """One log judged. Line numbers count from 1. With stage `none`, family and root are None.

    `rank` is that of the process of the root line, else the only rank of the log. `clock` (`MM-DD HH:MM:SS`, the log's
    own) is the root line's, `formed_at` the moment at which the communication group stood, the same one on all nodes.

    `certain`: the cause cannot change with later lines, so a launch may be ended early. `note` says what the log does
    not hold and where it may be found.
    """

    stage: Stage
    family: Family | None = None
    root_line_no: int | None = None
    root_line: str | None = None
    root_template: str = ""
    consequences: tuple[int, ...] = ()
    reached: tuple[Reached, ...] = ()
    process: str | None = None
    rank: int | None = None
    clock: str | None = None
    formed_at: str | None = None
    vllm_version: str | None = None
    confidence: float = 0.0
    certain: bool = False
    is_vllm_log: bool = True
    expected_next: Stage | None = None
    note: str = ""

    def failure(self) -> Failure | None:
        """The failure in the words of the domain; None for a healthy log."""
        if self.stage is Stage.NONE:
            return None
        return Failure(
            stage=self.stage,
            family=self.family or Family.OTHER,
            root_line=self.root_line,
            root_line_no=self.root_line_no,
            root_template=self.root_template,
            consequences=self.consequences,
            reached=tuple(item.stage for item in self.reached),
            vllm_version=self.vllm_version,
            confidence=self.confidence,
            detail=self.note,
        )

    def as_json(self) -> dict[str, Any]:
        """JSON-ready; the keys of DESIGN's triage shape and more."""
        return {
            "stage": self.stage.value,
            "family": self.family.value if self.family else None,
            "root_line_no": self.root_line_no,
            "root_line": self.root_line,
            "root_template": self.root_template,
            "consequences": list(self.consequences),
            "reached": [
                {"stage": item.stage.value, "line_no": item.line_no, "line": item.line} for item in self.reached
            ],
            "process": self.process,
            "rank": self.rank,
            "vllm_version": self.vllm_version,
            "confidence": self.confidence,
            "certain": self.certain,
            "is_vllm_log": self.is_vllm_log,
            "expected_next": self.expected_next.value if self.expected_next else None,
            "note": self.note,
        }
