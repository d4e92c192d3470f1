"""From a checked recipe to the conditions that the domain compares facts with."""

from __future__ import annotations

from repro.domain.command import FlagValue as CommandValue
from repro.domain.command import is_layout
from repro.domain.compatibility import (
    CommandConditions,
    Conditions,
    GoneVariable,
    GpuKind,
    ImageConditions,
    RefusedFlag,
)
from repro.recipe.model import Recipe
from repro.recipe.strict import FlagValue

_GB = 10**9


def conditions_of(recipe: Recipe) -> Conditions:
    """Everything that this recipe asks of an environment."""
    asked, origin = recipe.compatibility, recipe.origin
    size = asked.model_files.size_min_gb
    return Conditions(
        recipe=recipe.reference,
        title=recipe.title,
        source=origin.source if origin else "",
        commit=origin.commit if origin else None,
        read=origin.read if origin else None,
        model=recipe.model,
        platform=asked.platform,
        driver_min=asked.driver_min,
        cuda_min=asked.cuda_min,
        vllm_min=asked.vllm_min,
        nodes=asked.nodes,
        gpus=tuple(GpuKind(gpu.name, gpu.count_min) for gpu in asked.gpus),
        memory_min=round(asked.memory_min_gb * _GB) if asked.memory_min_gb else None,
        image=ImageConditions(
            official=tuple(asked.image.official),
            forbidden_tags=tuple((tag.pattern, tag.reason) for tag in asked.image.forbidden_tags),
            pinned=asked.image.pinned,
        ),
        weight_files=asked.model_files.weight_files,
        weight_bytes=round(size * _GB) if size else None,
        command=_command(recipe),
    )


def _command(recipe: Recipe) -> CommandConditions:
    asked = recipe.compatibility
    # A minimal command needs the recipe's own numbers (memory shares, lengths); production may have others and work.
    numbers = {n: v for n, v in recipe.required.flags.items() if type(v) in (int, float) and not is_layout(n)}
    return CommandConditions(
        required={name: _value(value) for name, value in recipe.required.flags.items() if name not in numbers},
        expected={name: _value(value) for name, value in {**numbers, **asked.expected_flags}.items()},
        refused=tuple(RefusedFlag(r.flag, r.reason, r.value, r.with_flag, r.vllm_below) for r in asked.refused),
        required_environment={**recipe.required.environment, **asked.environment},
        gone_environment=tuple(GoneVariable(gone.name, gone.instead, gone.since) for gone in asked.environment_gone),
        tool_parser=asked.parsers.tools,
        reasoning_parser=asked.parsers.reasoning,
        prefix_caching_default=tuple(
            (rule.vllm.lstrip("<"), rule.default == "on") for rule in recipe.prefix_caching_default
        ),
    )


def _value(value: FlagValue) -> CommandValue:
    """A value of the file as a command line has it: text, a switch, or several words."""
    if isinstance(value, bool):
        return value
    return tuple(value) if isinstance(value, list) else str(value)
