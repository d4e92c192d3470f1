"""JSON Schemas of the files that users write, for editors and for `repro schema`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from repro.errors import UsageError
from repro.recipe.model import Recipe
from repro.recipe.scenario import Scenario

SCHEMAS: dict[str, type[BaseModel]] = {"scenario": Scenario, "recipe": Recipe}


def json_schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of `scenario` or `recipe`; UsageError for another kind."""
    model = SCHEMAS.get(kind)
    if model is None:
        raise UsageError(f"there is no schema called {kind!r}", f"There are: {', '.join(sorted(SCHEMAS))}.")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **model.model_json_schema(by_alias=True),
        "title": f"repro {kind}",
    }
