"""The prefix cache against a plain model of it: the longest known chain of full blocks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.simulator.prefix_cache import PrefixCache

PROMPTS = st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=14), st.sampled_from(["", "s"])), max_size=12)


@given(PROMPTS, st.integers(1, 4))
def test_a_hit_is_the_longest_chain_of_blocks_seen_before(prompts: list[tuple[list[int], str]], block: int) -> None:
    cache = PrefixCache(block, 10_000)
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for prompt, salt in prompts:
        known = 0
        while known + block <= len(prompt) - 1 and (salt, tuple(prompt[: known + block])) in seen:
            known += block
        assert cache.admit(prompt, salt) == known
        seen |= {(salt, tuple(prompt[:end])) for end in range(block, len(prompt) + 1, block)}


def test_the_last_token_is_always_computed() -> None:
    cache = PrefixCache(16, 100)
    assert cache.admit(range(32)) == 0
    assert cache.admit(range(32)) == 16
    assert cache.admit(range(33)) == 32


def test_a_salt_shares_nothing_with_another() -> None:
    cache = PrefixCache(16, 100)
    cache.admit(range(64), "one")
    assert cache.admit(range(64), "two") == 0
    assert cache.admit(range(64), "one") == 48


def test_the_least_recently_used_blocks_leave() -> None:
    cache = PrefixCache(16, 4)
    cache.admit(range(64))
    cache.admit(range(1000, 1032))
    assert len(cache) == 4
    assert cache.admit(range(64)) == 0


def test_a_block_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        PrefixCache(0, 1)
