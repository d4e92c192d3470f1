"""Both ends of the request values: production's as asked, the minimal ones from the recipe and always below them."""

from __future__ import annotations

from dataclasses import replace

from repro.domain.command import Command
from repro.domain.request import Request
from repro.domain.scene import CONCURRENCY, INPUT_TOKENS, MAX_TOKENS, REQUEST_DEFAULTS
from repro.domain.variable import Value
from repro.recipe.asked import Asked
from repro.recipe.model import Recipe

# Below this a prompt is hardly more than its chat frame, so its length is left alone.
_SHORTEST_PROMPT = 32

Values = dict[str, Value]


def request_ends(asked: Asked, recipe: Recipe, production: Command, notes: list[str]) -> tuple[Asked, Values, Values]:
    """What is asked in the end, and a minimal and a production value for every name of REQUEST_DEFAULTS.

    Where nothing at all is known about production's requests, the recipe's own request is sent, the same on both ends:
    nobody claims that its values make production fail.
    """
    if asked.request is None and asked.input_tokens is None and recipe.request is not None:
        borrowed = replace(asked, request=_recipes_request(recipe, production))
        notes.append("nothing was said about production's requests: the recipe's own request is sent on both ends.")
        low, high = _ends(borrowed, recipe)
        return borrowed, low if asked.max_tokens else {**low, MAX_TOKENS: high[MAX_TOKENS]}, high
    low, high = _ends(asked, recipe)
    if asked.input_tokens is None and asked.request is None:
        notes.append(f"no prompt and no length were given: {high[INPUT_TOKENS]} tokens of seeded text on both ends.")
    elif asked.input_tokens is None:
        notes.append(
            "the request's prompt is sent whole on both ends; to make its length a variable, give --input-tokens N, or "
            "input_tokens on both ends of the scenario."
        )
    return asked, low, high


def _recipes_request(recipe: Recipe, production: Command) -> Request | None:
    if recipe.request is None:
        return None
    served = production.flag("--served-model-name") or production.model
    name = served[0] if isinstance(served, tuple) else served
    return Request.of(recipe.request.path, {**recipe.request.body, "model": name})


def _ends(asked: Asked, recipe: Recipe) -> tuple[Values, Values]:
    least = recipe.minimal_request
    high = asked.values()
    if asked.request is None:
        high[INPUT_TOKENS] = asked.input_tokens or least.input_tokens
        high[MAX_TOKENS] = asked.max_tokens or least.max_tokens
    low: Values = {**REQUEST_DEFAULTS, CONCURRENCY: _less(asked.concurrency, least.concurrency, 2)}
    # What nobody asked for is no difference: seeded text and its limit are then the recipe's on both ends.
    low[INPUT_TOKENS] = high[INPUT_TOKENS]
    if asked.input_tokens is not None:
        low[INPUT_TOKENS] = _less(asked.input_tokens, least.input_tokens, _SHORTEST_PROMPT)
    limit = high[MAX_TOKENS]
    low[MAX_TOKENS] = least.max_tokens
    if isinstance(limit, int) and (asked.request is not None or asked.max_tokens is not None):
        low[MAX_TOKENS] = _less(limit, least.max_tokens, 2)
    return low, high


def _less(production: int, least: int, floor: int) -> int:
    """The minimal end below this production value: the recipe's, or half where production itself is that small."""
    if production > least:
        return least
    return production // 2 if production >= floor else production
