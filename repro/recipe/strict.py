"""What every model of a file that users write has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

FlagValue = bool | int | float | str | list[str]


class Strict(BaseModel):
    """Unknown keys are errors and `"8"` is not a number: a typing mistake must not silently change a search."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
