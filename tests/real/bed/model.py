"""Makes the tiny model that the real vLLM serves: `python3 tests/real/bed/model.py [DIRECTORY]`.

The choice: every file is written with the standard library (safetensors is a length, a JSON header and raw bytes; the
tokenizer is JSON), so the same bytes come out with any Python, in about a second and without torch. Qwen3, 2 layers,
hidden 128, 4 heads, 2 KV heads, 512 tokens, 4,096 positions, two shards with an index as large models have.

The weights are random, so what it says means nothing; the rows of lm_head are zero except for printable tokens, so that
a greedy answer is never empty and never holds a special token. The tokenizer merges letters: tokens are not characters.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import struct
import sys
from array import array
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

REPOSITORY = Path(__file__).resolve().parents[3]
SEED = 20261201
VOCABULARY, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD, POSITIONS = 512, 128, 256, 2, 4, 2, 32, 4096
SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|open|>", "<|sep|>", "<|close|>", "<tool_call>", "</tool_call>"),
    *("<think>", "</think>"),
)
# The text that the merges are learned from: it decides how many characters a token holds in ordinary English.
TEXT = """The server became ready and answered the first request. The production command failed while it was starting
and every attempt to mend it failed differently, so the scene was frozen and one setting was brought back at a time. A
stable baseline is a configuration that passed; the threshold lies between the largest passing and the smallest failing
value. Please write a short story about a river, a mountain, a small boat and the people who live there. What is the
weather like today? Explain how a computer stores numbers, words and pictures, and why memory matters for long
conversations. You are a helpful assistant. Answer the question with one word. Once upon a time there was an engineer
who counted tokens."""
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
INDEX = "model.safetensors.index.json"
STAMP = "bed-stamp.json"

Tensor: TypeAlias = "tuple[tuple[int, ...], bytes]"


def tiny_path() -> Path:
    """Where the tiny model is or will be."""
    return Path(os.environ.get("REPRO_REAL_MODELS") or REPOSITORY / ".real" / "models").absolute() / "tiny"


def make_tiny(directory: Path | None = None) -> Path:
    """Makes the tiny model unless this very file has made it already; returns its directory."""
    directory = directory or tiny_path()
    wanted = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    stamp = directory / STAMP
    if stamp.is_file() and json.loads(stamp.read_text()).get("made_by") == wanted:
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    tokens = _write_tokenizer(directory)
    _write_json(directory / "config.json", config())
    _write_json(directory / "generation_config.json", {"eos_token_id": tokens["<|im_end|>"]})
    _write_weights(directory, [i for token, i in tokens.items() if re.fullmatch(r"Ġ?[A-Za-z]{2,}", token)])
    _write_json(stamp, {"made_by": wanted})
    return directory


def config() -> dict[str, object]:
    """config.json of the tiny model."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 2,
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _byte_characters() -> list[str]:
    """The printable character that byte-level BPE writes for each of the 256 bytes (GPT-2's table)."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def _merges(text: str, count: int) -> list[tuple[str, str]]:
    """The `count` most useful merges, most frequent pair first; ties go to the pair that sorts first."""
    letters = _byte_characters()
    found = re.findall(r" ?\w+| ?[^\w\s]+", text.replace("\n", " "))
    words = Counter(tuple(letters[byte] for byte in word.encode()) for word in found)
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        words = Counter({_merged(word, best): times for word, times in words.items()})
    return merges


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    out: list[str] = []
    for piece in word:
        if out and (out[-1], piece) == pair:
            out[-1] += piece
        else:
            out.append(piece)
    return tuple(out)


def _write_tokenizer(directory: Path) -> dict[str, int]:
    """Writes tokenizer.json and tokenizer_config.json; returns token -> id, special tokens included."""
    base = [*SPECIAL, *_byte_characters()]
    merges = _merges(TEXT, VOCABULARY - len(base))
    tokens = {token: number for number, token in enumerate([*base, *("".join(pair) for pair in merges)])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": tokens,
        "merges": [list(pair) for pair in merges],
    }
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": tokens[token], "content": token, **flags} for token in SPECIAL],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": model,
    }
    _write_json(directory / "tokenizer.json", document)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": POSITIONS,
        "bos_token": "<|endoftext|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
    }
    _write_json(directory / "tokenizer_config.json", settings)
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    return tokens


def _bf16(values: array[float]) -> bytes:
    """The upper halves of little-endian float32 numbers: bfloat16, rounded towards zero."""
    raw, out = values.tobytes(), bytearray(2 * len(values))
    out[0::2], out[1::2] = raw[2::4], raw[3::4]
    return bytes(out)


def _normal(dice: random.Random, deviation: float, *shape: int) -> Tensor:
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    return shape, _bf16(array("f", (dice.gauss(0.0, deviation) for _ in range(count))))


def _ones(size: int) -> Tensor:
    return (size,), _bf16(array("f", [1.0] * size))


def _layer(dice: random.Random, number: int) -> dict[str, Tensor]:
    name = f"model.layers.{number}"
    rows = {"q_proj": HEADS * HEAD, "k_proj": KV_HEADS * HEAD, "v_proj": KV_HEADS * HEAD}
    small = 0.06
    return {
        **{f"{name}.self_attn.{key}.weight": _normal(dice, small, size, HIDDEN) for key, size in rows.items()},
        f"{name}.self_attn.o_proj.weight": _normal(dice, small, HIDDEN, HEADS * HEAD),
        f"{name}.self_attn.q_norm.weight": _ones(HEAD),
        f"{name}.self_attn.k_norm.weight": _ones(HEAD),
        f"{name}.mlp.gate_proj.weight": _normal(dice, small, INNER, HIDDEN),
        f"{name}.mlp.up_proj.weight": _normal(dice, small, INNER, HIDDEN),
        f"{name}.mlp.down_proj.weight": _normal(dice, small, HIDDEN, INNER),
        f"{name}.input_layernorm.weight": _ones(HIDDEN),
        f"{name}.post_attention_layernorm.weight": _ones(HIDDEN),
    }


def _head(dice: random.Random, sayable: list[int]) -> Tensor:
    """lm_head: strong rows for the tokens that may be said, zero for all others."""
    values = array("f", [0.0] * (VOCABULARY * HIDDEN))
    for token in sayable:
        values[token * HIDDEN : (token + 1) * HIDDEN] = array("f", (dice.gauss(0.0, 0.5) for _ in range(HIDDEN)))
    return (VOCABULARY, HIDDEN), _bf16(values)


def _write_safetensors(path: Path, tensors: dict[str, Tensor]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (shape, body) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, offset + len(body)]}
        offset += len(body)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(body for _, body in tensors.values()))


def _write_weights(directory: Path, sayable: list[int]) -> None:
    dice = random.Random(SEED)
    first = {"model.embed_tokens.weight": _normal(dice, 0.5, VOCABULARY, HIDDEN), **_layer(dice, 0)}
    second = {**_layer(dice, 1), "model.norm.weight": _ones(HIDDEN), "lm_head.weight": _head(dice, sayable)}
    for shard, tensors in zip(SHARDS, (first, second), strict=True):
        _write_safetensors(directory / shard, tensors)
    places = {name: shard for shard, part in zip(SHARDS, (first, second), strict=True) for name in part}
    size = sum(len(body) for part in (first, second) for _, body in part.values())
    _write_json(directory / INDEX, {"metadata": {"total_size": size}, "weight_map": places})


if __name__ == "__main__":
    print(make_tiny(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
