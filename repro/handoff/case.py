"""What a session has to hand over: its pairs of sides, each side one configuration with the trial that showed it.

Which sides: the proof pairs where there are any; else the failing trial of the finding and what passed one variable
away from it; else the end that the session is about. So there always is one side that can be started by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.domain.launch import Launch
from repro.domain.request import RequestShape
from repro.domain.scene import Scene
from repro.domain.trial import Purpose
from repro.domain.variable import Configuration
from repro.errors import UsageError
from repro.handoff.kept import KeptBodies, kept_bodies
from repro.session.codec import configuration_from_json
from repro.session.journal import Event
from repro.session.summary import summary

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Side:
    """One configuration as it was tried. `trial` is a row of `session.summary.trials_of`."""

    trial: Json
    configuration: Configuration
    launch: Launch
    shape: RequestShape
    requests: KeptBodies | None

    @property
    def id(self) -> str:
        return str(self.trial["id"])

    @property
    def failed(self) -> bool:
        return bool(self.trial["outcome"] == "failed")


@dataclass(frozen=True)
class Pair:
    """Two sides that differ in `variable` alone; a single side has no variable. `state` is holds, masked, broken, or
    unproven where no pair was run for proof."""

    variable: str
    failing: Side
    passing: Side | None
    state: str


@dataclass(frozen=True)
class Case:
    """One session, read. `document` is `session.summary.summary`; there is at least one pair."""

    folder: Path
    session: str
    scene: Scene
    events: Sequence[Event]
    document: Json
    pairs: tuple[Pair, ...]

    @property
    def begun(self) -> Event:
        return self.events[0]

    @property
    def name(self) -> str:
        """The top folder of the bundle: `<scene>-<session>`, in characters that every file system takes."""
        return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{self.scene.name}-{self.session}").strip("-.")[:90]

    @property
    def sides(self) -> tuple[Side, ...]:
        """Every side once, failing before passing."""
        found = {s.id: s for pair in self.pairs for s in (pair.failing, pair.passing) if s is not None}
        return tuple(found.values())

    def trial(self, trial_id: str) -> Json | None:
        for trial in self.document["trials"]:
            if trial["id"] == trial_id:
                return dict(trial)
        return None


def read_case(folder: Path, events: Sequence[Event], scene: Scene) -> Case:
    """The case of a session folder. Raises UsageError for a session in which nothing was tried to its end."""
    document = summary(events, folder.name)
    trials = {t["id"]: t for t in document["trials"]}

    def side(trial: Json) -> Side:
        configuration = configuration_from_json(trial["values"])
        return Side(
            trial,
            configuration,
            scene.launch(configuration),
            scene.shape(configuration),
            kept_bodies(folder, trial["id"]),
        )

    pairs = tuple(_proof_pairs(document, trials, side)) or tuple(_other_pairs(document, side))
    if not pairs:
        raise UsageError(
            f"session {folder.name} has finished no trial of its ends yet, so there is nothing to hand over",
            f"go on with it: repro bisect --resume --session {folder.name}",
        )
    return Case(folder, folder.name, scene, events, document, pairs)


def _proof_pairs(document: Json, trials: Mapping[str, Json], side: Any) -> Iterator[Pair]:
    for finding in document.get("findings", ()):
        for pair in finding["proof"]:
            state = "holds" if pair["holds"] else "masked" if pair["masked"] else "broken"
            failing, passing = (side(trials[pair[key]]) for key in ("failing_trial", "passing_trial"))
            yield Pair(pair["variable"], failing, passing, state)


def _other_pairs(document: Json, side: Any) -> Iterator[Pair]:
    failing = _failing_trial(document)
    if failing is None:
        return
    found = False
    for member in _members(document):
        near = [t for t in document["trials"] if t["outcome"] == "passed" and _differing(t, failing) == [member]]
        if near:
            found = True
            yield Pair(member, side(failing), side(near[-1]), "unproven")
    if not found:
        yield Pair("", side(failing), None, "unproven")


def _failing_trial(document: Json) -> Json | None:
    """The trial that shows the finding with the least around it; without a finding, the production end."""
    for finding in document.get("findings", ()):
        shown = [t for t in document["trials"] if (t["stage"], t["family"]) == (finding["stage"], finding["family"])]
        if shown:
            return dict(shown[-1])
    ends = [t for t in document["trials"] if t["purpose"] == Purpose.PRODUCTION_END.value]
    failed = [t for t in ends if t["outcome"] == "failed"]
    return next((dict(t) for t in (*failed, *ends)), None)


def _members(document: Json) -> list[str]:
    return [v["name"] for finding in document.get("findings", ()) for v in finding["variables"]]


def _differing(left: Json, right: Json) -> list[str]:
    return [name for name, value in left["values"].items() if right["values"][name] != value]
