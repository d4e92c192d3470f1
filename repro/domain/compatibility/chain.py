"""The compatibility chain: its links in fixed order, what each rule found, and the first broken link as headline.

The order is the order in which one thing stands on another: a wrong driver makes everything after it meaningless, so
what comes after the first broken link is kept and told, but marked as not yet meaningful.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from repro.domain.fingerprint import Label


class Link(str, Enum):
    """One link, in the chain's order."""

    DRIVER = "driver"
    CONTAINER_RUNTIME = "container_runtime"
    CUDA_RUNTIME = "cuda_runtime"
    IMAGE_BUILD = "image_build"
    VLLM_VERSION = "vllm_version"
    GPU = "gpu"
    MODEL_FILES = "model_files"
    FLAGS = "flags"
    PARSERS = "parsers"

    def __str__(self) -> str:
        return self.value

    @property
    def heading(self) -> str:
        """The link's name for people."""
        return _TITLES[self]

    @property
    def place(self) -> int:
        """From 0."""
        return list(Link).index(self)


_TITLES = {
    Link.DRIVER: "driver",
    Link.CONTAINER_RUNTIME: "container runtime",
    Link.CUDA_RUNTIME: "CUDA runtime",
    Link.IMAGE_BUILD: "image build",
    Link.VLLM_VERSION: "vLLM version",
    Link.GPU: "GPU model, count and memory",
    Link.MODEL_FILES: "model files",
    Link.FLAGS: "flags and environment",
    Link.PARSERS: "parsers",
}


class RuleOutcome(str, Enum):
    """What a rule, a link or the chain comes to. Unknown is never a pass."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


class Place(str, Enum):
    """Where a fact was read; three places may say three things, and only `inside` is what the server loaded."""

    INSIDE = "inside"
    HOST = "host"
    LOG = "log"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class RuleResult:
    """One rule's answer. `seen` is what is there, `wanted` what the recipe asks, `mend` what to do ("" where it holds).

    `evidence` is the label of the fact that decided. `places` holds, for a rule that compares places, what each says;
    None for one that is missing. `advice` marks a rule that warns and never breaks the chain. `link` is None for a rule
    about the recipe itself.
    """

    id: str
    link: Link | None
    outcome: RuleOutcome
    evidence: Label
    seen: str
    wanted: str
    mend: str = ""
    places: dict[Place, str | None] = field(default_factory=dict)
    advice: bool = False

    def as_json(self, meaningful: bool) -> dict[str, Any]:
        """JSON-ready; `meaningful` is false behind the first broken link."""
        shown: dict[str, Any] = {
            "id": self.id,
            "link": self.link.value if self.link else None,
            "outcome": self.outcome.value,
            "evidence": self.evidence.value,
            "seen": self.seen,
            "wanted": self.wanted,
            "mend": self.mend,
            "advice": self.advice,
            "meaningful": meaningful,
        }
        if self.places:
            shown["places"] = {place.value: said for place, said in self.places.items()}
            shown["missing_places"] = [place.value for place, said in self.places.items() if said is None]
        return shown


@dataclass(frozen=True)
class Chain:
    """All rules' answers in the chain's order."""

    results: tuple[RuleResult, ...]

    @property
    def headline(self) -> RuleResult | None:
        """The first broken rule of the first broken link."""
        return next((r for r in self.results if r.outcome is RuleOutcome.BROKEN and not r.advice), None)

    @property
    def warnings(self) -> tuple[RuleResult, ...]:
        """Rules that only warn, and do."""
        return tuple(r for r in self.results if r.advice and r.outcome is not RuleOutcome.HOLDS)

    @property
    def outcome(self) -> RuleOutcome:
        """Broken if any rule is, unknown if any is unknown and none broken; warnings do not count."""
        return worst([r.outcome for r in self.results if not r.advice])

    @property
    def first_broken(self) -> Link | None:
        """The link of the headline."""
        return self.headline.link if self.headline else None

    def meaningful(self, link: Link | None) -> bool:
        """Whether what this link says means something yet: nothing behind the first broken one does."""
        first = self.first_broken
        return first is None or link is None or link.place <= first.place

    def of(self, link: Link) -> tuple[RuleResult, ...]:
        """The answers of one link's rules."""
        return tuple(r for r in self.results if r.link is link)

    def link_outcome(self, link: Link) -> RuleOutcome | None:
        """What a link comes to; None for one that no rule of this recipe is about."""
        outcomes = [r.outcome for r in self.of(link) if not r.advice]
        return worst(outcomes) if outcomes else None

    def as_json(self) -> dict[str, Any]:
        """The keys of `repro check --json` that belong to the chain."""
        headline = self.headline
        return {
            "outcome": self.outcome.value,
            "first_broken": self.first_broken.value if self.first_broken else None,
            "headline": headline.as_json(True) if headline else None,
            "links": [
                {
                    "link": link.value,
                    "outcome": outcome.value if (outcome := self.link_outcome(link)) else None,
                    "meaningful": self.meaningful(link),
                }
                for link in Link
            ],
            "rules": [r.as_json(self.meaningful(r.link)) for r in self.results],
            "warnings": [r.id for r in self.warnings],
        }


def worst(outcomes: list[RuleOutcome]) -> RuleOutcome:
    """The worst of several: broken, else unknown (no outcome at all included), else holds."""
    if RuleOutcome.BROKEN in outcomes:
        return RuleOutcome.BROKEN
    if RuleOutcome.UNKNOWN in outcomes or not outcomes:
        return RuleOutcome.UNKNOWN
    return RuleOutcome.HOLDS
