"""Block-wise prefix cache as vLLM's: full blocks, each hashed with the one before it, the least recently used leave.

A hit is counted in tokens, in whole blocks, and never covers the last prompt token, which is always computed. A salt
enters the first block's hash, so prompts with different salts share nothing.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Sequence

_BYTES_PER_TOKEN = 8


class PrefixCache:
    """Remembers at most `capacity_blocks` blocks of `block_size` tokens. Not thread-safe; its owner locks."""

    def __init__(self, block_size: int, capacity_blocks: int) -> None:
        if block_size < 1:
            raise ValueError(f"a block holds at least one token, not {block_size}")
        self._block_size = block_size
        self._capacity = max(capacity_blocks, 1)
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def admit(self, tokens: Sequence[int], salt: str = "") -> int:
        """Look a prompt up and remember it; returns how many of its tokens were found."""
        hashes = self._hashes(tokens, salt)
        reusable = max(len(tokens) - 1, 0) // self._block_size
        found = 0
        while found < reusable and hashes[found] in self._blocks:
            found += 1
        for block in hashes:
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return found * self._block_size

    def _hashes(self, tokens: Sequence[int], salt: str) -> list[bytes]:
        data = array("q", tokens).tobytes()
        step = self._block_size * _BYTES_PER_TOKEN
        hashes: list[bytes] = []
        parent = salt.encode("utf-8", "surrogatepass")
        for start in range(0, len(data) - step + 1, step):
            parent = hashlib.sha256(parent + b"\x00" + data[start : start + step]).digest()
            hashes.append(parent)
        return hashes
