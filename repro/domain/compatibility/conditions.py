"""What a recipe asks of the environment, as plain values; the recipe room makes them from a baseline file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from repro.domain.command import FlagValue


@dataclass(frozen=True)
class GpuKind:
    """One kind of GPU that holds the model: a word of its name ("B300") and how many, over all nodes."""

    name: str
    count: int


@dataclass(frozen=True)
class RefusedFlag:
    """A flag (with that value, together with that other flag, in versions below that one) that cannot work."""

    flag: str
    reason: str
    value: str | None = None
    with_flag: str | None = None
    vllm_below: str | None = None


@dataclass(frozen=True)
class GoneVariable:
    """A variable that old launch scripts still set; from version `since` on it is not read any more."""

    name: str
    instead: str
    since: str


@dataclass(frozen=True)
class ImageConditions:
    """`official` are globs over image names without tag; `forbidden_tags` globs over tags, each with the reason."""

    official: tuple[str, ...] = ()
    forbidden_tags: tuple[tuple[str, str], ...] = ()
    pinned: bool = False


@dataclass(frozen=True)
class CommandConditions:
    """`expected` flags are those whose silent loss the recipe warns of; losing them is a warning, not a break."""

    required: Mapping[str, FlagValue] = field(default_factory=dict)
    expected: Mapping[str, FlagValue] = field(default_factory=dict)
    refused: tuple[RefusedFlag, ...] = ()
    required_environment: Mapping[str, str] = field(default_factory=dict)
    gone_environment: tuple[GoneVariable, ...] = ()
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    prefix_caching_default: tuple[tuple[str, bool], ...] = (("", True),)
    """(versions below this one, on); "" for all others."""


@dataclass(frozen=True)
class Conditions:
    """Everything that a recipe asks. None and () ask for nothing. `memory_min` in bytes over all GPUs."""

    recipe: str
    title: str = ""
    source: str = ""
    commit: str | None = None
    read: date | None = None
    model: str | None = None
    platform: str | None = None
    """"cuda", "rocm" or "cpu"."""
    driver_min: str | None = None
    cuda_min: str | None = None
    vllm_min: str | None = None
    nodes: int = 1
    gpus: tuple[GpuKind, ...] = ()
    memory_min: int | None = None
    image: ImageConditions = ImageConditions()
    weight_files: int | None = None
    weight_bytes: int | None = None
    command: CommandConditions = CommandConditions()


@dataclass(frozen=True)
class SelfBuilt:
    """What the user declares about an image of their own; None for what they did not say."""

    commit: str | None = None
    lock: str | None = None
    recipe: str | None = None
    rollback: str | None = None

    def missing(self) -> tuple[str, ...]:
        """The names of what a self-built image needs and this one lacks."""
        return tuple(name for name in ("commit", "lock", "recipe", "rollback") if getattr(self, name) is None)
