"""A tokenizer without a vocabulary: a token's number is its own text, so every process reads and writes the same ones.

A piece is at most six bytes of UTF-8: an optional space and up to five printable ASCII characters, a run of spaces,
one control character, or one other character. Its number is those bytes behind a leading 1 byte, which stays below
2**49 and so survives any JSON reader. Numbers below 256 are the special tokens. Cutting at a token boundary never
changes the tokens before it: the first n tokens of a text, written out and read again, are the same n tokens.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

SPECIALS: dict[str, int] = {
    "<|im_start|>": 1,
    "<|im_end|>": 2,
    "<|open|>": 3,
    "<|close|>": 4,
    "<|sep|>": 5,
    "<|end_of_msg|>": 6,
}
_SPECIAL_TEXT = {number: text for text, number in SPECIALS.items()}
_SPLIT_SPECIALS = re.compile("(" + "|".join(re.escape(text) for text in SPECIALS) + ")")
_PIECE = re.compile(r" ?[!-~]{1,5}| {1,6}|[\x00-\x1f\x7f]|[^\x00-\x7f]")

# The widest piece in characters; vLLM refuses a text prompt by characters with a bound of this kind.
MAX_CHARACTERS_PER_TOKEN = 6


@lru_cache(maxsize=64)
def encode(text: str) -> tuple[int, ...]:
    """The tokens of a text; empty for an empty text. `decode` is its inverse for every string."""
    numbers: list[int] = []
    for part in _SPLIT_SPECIALS.split(text):
        if part in SPECIALS:
            numbers.append(SPECIALS[part])
        else:
            numbers += [_number(piece) for piece in _PIECE.findall(part)]
    return tuple(numbers)


def decode(numbers: list[int] | tuple[int, ...]) -> str:
    """The text of some tokens; numbers that are no token become U+FFFD, as undecodable bytes do in real tokenizers."""
    return "".join(map(_text, numbers))


def render_chat(
    messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None, add_generation_prompt: bool = True
) -> str:
    """The prompt text of a conversation, by the frame that many open models use."""
    turns = [f"<|im_start|>system\n# Tools\n{json.dumps(tools)}<|im_end|>\n"] if tools else []
    turns += [f"<|im_start|>{m.get('role', 'user')}\n{message_text(m)}<|im_end|>\n" for m in messages]
    return "".join(turns) + ("<|im_start|>assistant\n" if add_generation_prompt else "")


def message_text(message: dict[str, Any]) -> str:
    """What a message says: its text parts in order, and its tool calls as JSON."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", json.dumps(part))) for part in content if isinstance(part, dict))
    calls = message.get("tool_calls")
    return (content or "") + (json.dumps(calls) if calls else "")


@lru_cache(maxsize=65536)
def _number(piece: str) -> int:
    return int.from_bytes(b"\x01" + piece.encode("utf-8", "surrogatepass"), "big")


def _text(number: int) -> str:
    if number in _SPECIAL_TEXT:
        return _SPECIAL_TEXT[number]
    data = number.to_bytes((number.bit_length() + 7) // 8, "big") if number > 255 else b""
    if data[:1] != b"\x01":
        return "\ufffd"
    try:
        return data[1:].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data[1:].decode("utf-8", "replace")
