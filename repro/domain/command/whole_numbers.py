"""Whole numbers as vLLM's command line writes them: "32k" is 32 000, "32K" is 32 768, "25.6k" is 25 600, "auto" is -1.

Source: human_readable_int and human_readable_int_or_auto in vllm/utils/argparse_utils.py of vLLM 0.32.
"""

from __future__ import annotations

import re

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_WITH_SUFFIX = re.compile(r"(\d+)(\.\d+)?([kKmMgGtT])")


def as_int(text: str) -> int | None:
    """The whole number that vLLM reads, or None where vLLM would refuse the text (a fraction before K, M, G or T)."""
    text = text.strip()
    if text.lower() == "auto":
        return -1
    match = _WITH_SUFFIX.fullmatch(text)
    if match is None:
        return int(text) if re.fullmatch(r"[+-]?\d+", text) else None
    whole, fraction, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(whole + (fraction or "")) * _DECIMAL[suffix])
    return None if fraction else int(whole) * _BINARY[suffix]
