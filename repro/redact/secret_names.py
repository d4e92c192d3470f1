"""Whether a *name* (of a flag, a JSON key, an environment variable) says that its value is a secret.

Names are judged by their words, never by a substring: `max_tokens`, `token_ids`, `tokenizer` and
`VLLM_STREAM_TOKEN_THRESHOLD` all contain "token" and are harmless. Two grades keep the look-alikes that end in the
word itself (`eos_token`, `sort_key`): a `CERTAIN` name masks any value, a `LIKELY` one only a value that looks random.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from enum import Enum


class NameKind(Enum):
    """What a name tells about its value."""

    HARMLESS = "harmless"
    LIKELY = "likely"
    CERTAIN = "certain"


# fmt: off
_CERTAIN_LAST = frozenset({
    "password", "passwd", "passphrase", "secret", "secrets", "credential", "credentials", "apikey",
    "authorization", "cookie", "creds", "cred", "passcode", "bearer",
})
# Short words that mean a secret in the name of an environment variable (DB_PASS, GH_PAT) and often something else in
# prose, in logs (`pass: 3`) and as keys.
_CERTAIN_IN_CAPITALS = frozenset({"pass", "pat", "auth", "priv"})
_CERTAIN_TOKENS = frozenset({
    "access", "api", "auth", "bearer", "bot", "github", "gh", "hf", "hub", "id", "login", "oauth", "personal",
    "refresh", "session",
})
_CERTAIN_KEYS = frozenset({
    "access", "account", "api", "auth", "client", "encryption", "master", "private", "secret", "signing", "ssh",
})
_HARMLESS_KEYS = frozenset({
    "block", "cache", "config", "dict", "foreign", "hash", "layer", "partition", "prefix", "primary", "public",
    "sort", "state", "weight",
})

# Values that are no secret whatever the name says: unset markers, and the words with which argument parsers go on
# after a flag's name ("argument --api-key: expected at least one argument").
PLACEHOLDERS = frozenset({
    "none", "null", "true", "false", "yes", "no", "0", "1", "empty", "unset", "optional", "expected", "required",
    "invalid", "missing", "must",
})
# fmt: on

_MIN_RANDOM_LENGTH = 16
_MIN_RANDOM_BITS = 3.0  # bits a character; English words stay near 2.5 at this length, base64 of 16 bytes is near 3.9
_RANDOM_ALPHABET = re.compile(r"[A-Za-z0-9_\-./+=~]+")


def words_of(name: str) -> tuple[str, ...]:
    """`X-Api-Key`, `hfToken` and `HF_TOKEN` as lower-case words."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return tuple(word for word in re.split(r"[^A-Za-z0-9]+", spaced.lower()) if word)


def kind_of_name(name: str) -> NameKind:
    """Grade a flag, JSON key or header name."""
    words = words_of(name)
    if not words:
        return NameKind.HARMLESS
    if words[-1] == "id" and words[-2:-1] == ("key",):
        words = words[:-1]
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    # `PWD` alone is the working directory of every process.
    if last in _CERTAIN_LAST or (last == "pwd" and before):
        return NameKind.CERTAIN
    if last in _CERTAIN_IN_CAPITALS:
        return NameKind.CERTAIN if name.isupper() else NameKind.LIKELY
    if last == "token":
        return NameKind.CERTAIN if before in _CERTAIN_TOKENS else NameKind.LIKELY
    if last == "key" and before:
        if before in _CERTAIN_KEYS:
            return NameKind.CERTAIN
        return NameKind.HARMLESS if before in _HARMLESS_KEYS else NameKind.LIKELY
    return NameKind.HARMLESS


def looks_random(value: str) -> bool:
    """Whether a value looks like a generated secret: long, one alphabet, letters and digits, many different ones."""
    if len(value) < _MIN_RANDOM_LENGTH or not _RANDOM_ALPHABET.fullmatch(value):
        return False
    if not (re.search(r"[A-Za-z]", value) and re.search(r"\d", value)):
        return False
    total = len(value)
    bits = -sum(n / total * math.log2(n / total) for n in Counter(value).values())
    return bits >= _MIN_RANDOM_BITS


# $NAME, ${NAME}, ${NAME:?}, ${NAME:-}: a default that is written out may be the secret itself.
_REFERENCE = re.compile(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*(?::?[?+-])?\}?)")


def is_placeholder(value: str) -> bool:
    """Whether a value says "nothing here" or only refers to a shell variable, punctuation around it left aside."""
    bare = value.strip(" ,;\"'")
    return not bare or bare.lower() in PLACEHOLDERS or _REFERENCE.fullmatch(bare) is not None


def must_mask(name: str, value: str) -> bool:
    """Whether this value under this name has to be masked."""
    if is_placeholder(value):
        return False
    kind = kind_of_name(name)
    return kind is NameKind.CERTAIN or (kind is NameKind.LIKELY and looks_random(value))
