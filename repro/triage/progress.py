"""Follows a start through its markers: what is proven done, what is being worked on, and the events that matter."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from repro.domain.stage import STARTUP_ORDER, Stage
from repro.triage.framing import Frame
from repro.triage.tables import Marker

_RANK = re.compile(r"\brank[= ](\d+)\b")  # `world_size=2 rank=1`, `rank 1 in world size 2`
_NAMED_RANK = re.compile(r"^rank(\d+)$|\brank=(\d+)|^(?:Vllm)?Worker[_ ]TP(\d+)$")
_VERSION_NUMBER = re.compile(r"\d+\.\d+")
GROUP_LINE_SINCE = (0, 12)  # first release that prints `world_size=… distributed_init_method=` at INFO


@dataclass(frozen=True)
class Reached:
    """A stage that was proven done, and the line (counted from 1) that proves it."""

    stage: Stage
    line_no: int
    line: str


@dataclass
class Progress:
    """The state of one start. `talkative`: INFO lines are printed, so that a missing marker means something."""

    work: Stage = Stage.CONTAINER_INIT
    version: str | None = None
    ready: bool = False
    headless: bool = False
    cache_set: bool = False
    engine_started: bool = False
    started: bool = False
    talkative: bool = False
    banner_by: str | None = None
    reached: list[Reached] = field(default_factory=list)
    last_line: tuple[int, str] | None = None
    ranks: dict[str, int] = field(default_factory=dict)  # by the number of the process that printed its rank
    formed_at: str | None = None  # the log's clock when its first rank had all its groups: the same moment on all nodes
    begun_at: str | None = None

    @property
    def state(self) -> tuple[object, ...]:
        """What decides how later lines are read."""
        told = (len(self.reached), len(self.ranks))
        return self.work, self.version, self.ready, self.headless, self.cache_set, self.banner_by, told

    @property
    def serving(self) -> bool:
        """From ready on; a headless rank prints no such line and counts as serving once its cache stands (RULES S9)."""
        return self.ready or (self.headless and self.cache_set)

    def take(self, marker: Marker, number: int, line: str, text: str, source: Frame) -> None:
        """Notes what `marker`, found in line `number`, proves and begins."""
        self._note_version(marker, text)
        if marker.event == "headless":
            self.headless = True
        elif marker.event == "engine":
            self.engine_started = True
        elif marker.event == "cache":
            self.cache_set = True
        elif marker.event == "banner":
            self.banner_by = source.process or ""
        elif marker.event in {"ready", "serving", "statistics"}:
            self.ready = True
        elif marker.event in {"attempt", "formed"}:
            self._note_rank(marker, text, source)
        if marker.proves and marker.event not in {"serving", "statistics"}:
            self.started = True
        done = {item.stage for item in self.reached}
        self.reached.extend(Reached(stage, number, line) for stage in marker.proves if stage not in done)
        if marker.begins is not None and (marker.begins.position >= self.work.position or self._may_go_back(marker)):
            self.work = marker.begins

    def _note_rank(self, marker: Marker, text: str, source: Frame) -> None:
        if found := _RANK.search(text):
            self.ranks[source.pid or ""] = int(found[1])
        if marker.event == "formed" and self.formed_at is None:
            self.formed_at = source.clock

    def rank_of(self, source: Frame | None) -> int | None:
        """The rank of the process that printed a line; where it has none, the only rank that this log tells of."""
        if source is not None and source.pid in self.ranks:
            return self.ranks[source.pid]
        if source is not None and (named := _NAMED_RANK.search(source.process or "")):
            return int(next(number for number in named.groups() if number is not None))
        only = set(self.ranks.values())
        return next(iter(only)) if len(only) == 1 else None

    def _may_go_back(self, marker: Marker) -> bool:
        """The configuration phase is engine_init work (RULES S6) before any device; real work then begins anew."""
        proven = {item.stage for item in self.reached}
        return marker.begins is not None and self.work is Stage.ENGINE_INIT and Stage.WEIGHT_ACCESS not in proven

    def _note_version(self, marker: Marker, text: str) -> None:
        if self.version is None and marker.regex is not None and "version" in marker.regex.groupindex:
            found = marker.regex.search(text)
            if found and found["version"]:
                self.version = found["version"].rstrip(".,;)")

    @property
    def waiting_in(self) -> Stage:
        """The stage a silent start is stuck in. Where the group's line is hidden, the engine's start begins it."""
        grouped = any(item.stage is Stage.COMM_GROUP for item in self.reached)
        if self.work is not Stage.ENGINE_INIT or grouped or not self.engine_started or self.version is None:
            return self.work
        found = _VERSION_NUMBER.match(self.version)
        number = tuple(int(part) for part in found[0].split(".")) if found else GROUP_LINE_SINCE
        return Stage.COMM_GROUP if number < GROUP_LINE_SINCE else Stage.DEVICE_RECOGNITION

    @property
    def expected_next(self) -> Stage | None:
        """The first stage in time order that is not proven yet; None once requests were answered, and for a headless
        node that serves, which prints nothing more.
        """
        if self.headless and self.serving:
            return None
        proven = {item.stage for item in self.reached}
        return next((stage for stage in STARTUP_ORDER if stage not in proven), None)
