"""The shape of a baseline file (a recipe), checked by pydantic where it enters the house.

A recipe says what a known model needs to start at all. It never says what a good production command looks like.
"""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from repro.domain.release import release
from repro.recipe.conditions import Compatibility
from repro.recipe.strict import FlagValue, Strict


class Required(Strict):
    """What the minimal command holds besides the model and production's parallel layout."""

    flags: dict[str, FlagValue] = Field(
        default_factory=dict, description="Flags with the values that the model needs; true is a flag without a value."
    )
    as_production: list[str] = Field(
        default_factory=list, description="Flags kept as production has them, absent where production has none."
    )
    environment: dict[str, str] = Field(default_factory=dict, description="Variables with the values the model needs.")
    environment_as_production: list[str] = Field(
        default_factory=list, description="Variables kept as production has them."
    )


class PrefixCachingDefault(Strict):
    """What a vLLM of this version range does when the command says nothing. `vllm` is empty for every other version."""

    vllm: str = Field(
        "", description='A range such as "<0.28"; empty for all other versions.', pattern=r"^(|<\d[\d.]*)$"
    )
    default: Literal["on", "off"]


class FixedRequest(Strict):
    """The recipe's own request, for a run without production's."""

    path: str = Field(pattern=r"^/")
    body: dict[str, Any]


class MinimalRequest(Strict):
    """The minimal ends of the request variables."""

    input_tokens: int = Field(128, ge=1)
    max_tokens: int = Field(16, ge=1)
    concurrency: int = Field(1, ge=1)


class Origin(Strict):
    """Where the recipe was read, and when: known facts grow old."""

    source: str
    commit: str | None = None
    read: date


class Recipe(Strict):
    """One baseline file."""

    # `schema` is the key in the file; pydantic keeps that name for itself.
    document: Literal["repro/recipe"] = Field(alias="schema")
    version: Literal[1]
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    title: str
    model: str | None = Field(None, description="The one model that this recipe is for.")
    models: list[str] = Field(
        default_factory=list, description="Globs over model names for which this recipe is chosen by itself."
    )
    preferred: bool = Field(
        False, description="Chosen among recipes for the same model where the hardware does not decide."
    )
    image: str | None = None
    fits_one_node: bool = Field(description="Whether the model fits the GPUs of one node, so that nodes can vary.")
    required: Required = Field(default_factory=Required)
    prefix_caching_default: list[PrefixCachingDefault] = Field(
        default_factory=lambda: [PrefixCachingDefault(default="on")], min_length=1
    )
    minimal_request: MinimalRequest = Field(default_factory=MinimalRequest)
    compatibility: Compatibility = Field(default_factory=Compatibility)
    request: FixedRequest | None = None
    origin: Origin | None = None
    _path: str | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _flags_look_like_flags(self) -> Recipe:
        refused = [name for rule in self.compatibility.refused for name in (rule.flag, rule.with_flag) if name]
        written = [*self.required.flags, *self.required.as_production, *self.compatibility.expected_flags, *refused]
        for name in written:
            if not name.startswith("--"):
                raise ValueError(f"{name!r} is no long flag; write it as --{name.lstrip('-')}")
        return self

    def found_at(self, path: Path) -> Recipe:
        """The same recipe, remembering that it came from a file of the user's own."""
        own = self.model_copy()
        own._path = str(path.resolve())
        return own

    @property
    def reference(self) -> str:
        """What finds this recipe again on this machine: its name, or the path of a file of the user's own."""
        return self._path or self.name

    @property
    def digest(self) -> str:
        """Twelve hex digits over what the recipe says; comments and layout do not count."""
        return hashlib.sha256(self.model_dump_json(by_alias=True).encode()).hexdigest()[:12]

    def caches_prefixes(self, vllm_version: str | None) -> bool:
        """Whether this version caches prefixes when the command says nothing; without a version, the newest known."""
        older = sorted((r for r in self.prefix_caching_default if r.vllm), key=lambda r: release(r.vllm[1:]))
        for rule in older:
            if vllm_version is not None and release(vllm_version) < release(rule.vllm[1:]):
                return rule.default == "on"
        return next((r.default for r in self.prefix_caching_default if not r.vllm), "on") == "on"

    @property
    def minimal_argv(self) -> tuple[str, ...] | None:
        """The command that the recipe's model needs at least; None for a recipe that is for any model."""
        if self.model is None:
            return None
        argv = ["vllm", "serve", self.model]
        for name, value in self.required.flags.items():
            if value is False:
                argv.append(f"--no-{name[2:]}")
            elif value is True:
                argv.append(name)
            else:
                argv += [name, *(value if isinstance(value, list) else [str(value)])]
        return tuple(argv)
