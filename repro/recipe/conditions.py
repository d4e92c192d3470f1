"""The `[compatibility]` part of a recipe: what the machine, the image and the command must be for the model to work.

Every key is optional, and an absent key asks for nothing: a recipe says what its source says and no more.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from repro.recipe.strict import FlagValue, Strict


class Gpus(Strict):
    """One kind of GPU the model is known to run on, and how many of it hold the model, over all nodes."""

    name: str = Field(description='A word of the name that the driver gives it, such as "B300".')
    count_min: int = Field(ge=1)


class ForbiddenTag(Strict):
    """A tag that cannot work here."""

    pattern: str = Field(description='A glob over the tag, such as "*cu129*".')
    reason: str


class Image(Strict):
    """Which images are official, and how they must be named."""

    official: list[str] = Field(default_factory=list, description="Globs over image names without tag.")
    forbidden_tags: list[ForbiddenTag] = Field(default_factory=list)
    pinned: bool = Field(False, description="Whether a tag that moves is refused; a digest pins an image.")


class ModelFiles(Strict):
    """What a whole download of the model is."""

    weight_files: int | None = Field(None, ge=1)
    size_min_gb: float | None = Field(None, gt=0, description="All files together, in units of 10^9 bytes.")


class Refused(Strict):
    """A flag, or a pair of flags, that cannot work with this model."""

    flag: str
    value: str | None = Field(None, description="Only with this value; any other than off if absent.")
    with_flag: str | None = Field(None, description="Only together with this flag, set to more than 1.")
    vllm_below: str | None = Field(None, description="Only in versions below this one.")
    reason: str


class Gone(Strict):
    """An environment variable of old launch scripts that newer versions do not read."""

    name: str = Field(pattern=r"^[A-Z][A-Z0-9_]*$")
    since: str = Field(description="The first version that does not read it.")
    instead: str = Field(description="What replaces it, or that nothing does.")


class Parsers(Strict):
    """The model's own parsers; another one is refused, none is not."""

    tools: str | None = None
    reasoning: str | None = None


class Compatibility(Strict):
    """What the environment must offer; an absent key is not asked for. `gpus` are alternatives."""

    platform: Literal["cuda", "rocm", "cpu"] | None = None
    driver_min: str | None = None
    cuda_min: str | None = None
    vllm_min: str | None = None
    nodes: int = Field(1, ge=1, description="How many nodes the layout of this recipe has.")
    gpus: list[Gpus] = Field(default_factory=list)
    memory_min_gb: float | None = Field(None, gt=0, description="Of all GPUs together, in units of 10^9 bytes.")
    image: Image = Field(default_factory=Image)
    model_files: ModelFiles = Field(default_factory=ModelFiles)
    expected_flags: dict[str, FlagValue] = Field(
        default_factory=dict, description="Settings for this hardware that are easily lost; losing them is a warning."
    )
    refused: list[Refused] = Field(default_factory=list)
    environment: dict[str, str] = Field(default_factory=dict, description="Variables that must have these values.")
    environment_gone: list[Gone] = Field(default_factory=list)
    parsers: Parsers = Field(default_factory=Parsers)
