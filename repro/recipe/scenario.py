"""The shape of a scenario file, checked by pydantic where it enters the house.

One truth each: values live in the two ends alone; a `[[variable]]` only orders, couples and restricts what differs.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from repro.recipe.strict import Strict


class Environment(Strict):
    """What both ends have in common. Values of `env_from` are passed through at launch and never written."""

    env: dict[str, str] = Field(default_factory=dict, description="Names and values, fixed on both ends.")
    env_from: list[str] = Field(
        default_factory=list, description="Names only, such as HF_TOKEN; their values come from repro's environment."
    )


class End(Strict):
    """One end of the search: a command and what is asked of the server.

    An absent max_tokens, stream, reasoning_effort or tool_calls is what the request itself says.
    """

    command: list[str] | str = Field(description="The vLLM command as a list of arguments or as one line of shell.")
    input_tokens: int | None = Field(None, ge=1, description="Prompt length, a number as the server counts it.")
    max_tokens: int | None = Field(None, ge=1, description="The answer's limit, a whole number of tokens.")
    concurrency: int = Field(1, ge=1, description="Requests in flight together, a whole number.")
    stream: bool | None = Field(None, description="Whether the answer is streamed: true or false.")
    reasoning_effort: str | None = Field(None, description='Such as "low" or "high"; "" leaves it to the server.')
    tool_calls: bool | None = Field(None, description="Whether the request's tools are sent: true or false.")
    shared_prefix: bool = Field(False, description="Whether concurrent requests are equal to their end: true or false.")


class Expect(Strict):
    """What a good answer looks like; the keys of domain.request.Expectation."""

    status: int = Field(200, ge=100, le=599)
    not_empty: bool = True
    tool_call: bool = False
    finish_reasons: list[str] = Field(default_factory=list)
    no_markers: bool = True
    no_endless_token: bool = True
    deadline_s: float = Field(600.0, gt=0)


class RequestPart(Strict):
    """Production's own request. Without a body, seeded text without repeats is sent."""

    path: str = Field("/v1/chat/completions", pattern=r"^/", description='Such as "/v1/chat/completions".')
    body: dict[str, Any] | None = Field(None, description="The JSON body as a table.")
    body_json: str | None = Field(None, description="The JSON body as text, for what TOML cannot say (null).")
    file: str | None = Field(None, description="A JSON file with the body, relative to the scenario.")
    tools_json: str | None = Field(None, description="A JSON list of tool definitions as text.")
    tools_file: str | None = Field(None, description="A JSON file with tool definitions, relative to the scenario.")
    expect: Expect = Field(default_factory=Expect)

    @model_validator(mode="after")
    def _one_of_each(self) -> RequestPart:
        for names in (("body", "body_json", "file"), ("tools_json", "tools_file")):
            given = [name for name in names if getattr(self, name) is not None]
            if len(given) > 1:
                raise ValueError(f"{' and '.join(given)} say the same thing; keep one of them")
        return self


class VariablePart(Strict):
    """One thing that may differ between the ends; the order in the file is the order in which they are tried."""

    name: str = Field(description="A flag as in the command, env:NAME, or a request value such as input_tokens.")
    couple: list[str] = Field(
        default_factory=list, description="Flags and env:NAMEs that only make sense together and move as one."
    )
    levels: list[int] = Field(
        default_factory=list, description="Whole numbers: the only values tried between the two ends."
    )


class Scenario(Strict):
    """One scenario file."""

    # `schema` is the key in the file; pydantic keeps that name for itself.
    document: Literal["repro/scenario"] = Field(alias="schema")
    version: Literal[1]
    name: str = Field(min_length=1)
    recipe: str = Field("generic", description="The baseline's name, or the path of a file, relative to the scenario.")
    precision: float = Field(0.05, ge=0, lt=1, description="How close a threshold is narrowed; 0 is exact.")
    seed: int = 0
    exclude: list[str] = Field(
        default_factory=list, description="Differences that are no variables: both ends get production's value."
    )
    environment: Environment = Field(default_factory=Environment)
    minimal: End
    production: End
    request: RequestPart = Field(default_factory=RequestPart)
    variable: list[VariablePart] = Field(default_factory=list)
