"""The one object through which everything passes before it is written.

A text is worked on until nothing changes any more, and what is masked is never looked at again; so redacting twice
gives the same as redacting once. Equal secrets get equal masks, numbered by first sight: `***masked:hf_token:1***`.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from repro.redact.assignments import mask_assignments, may_assign, rule_of_name
from repro.redact.environment_names import is_launch_name, is_secret_name
from repro.redact.known import KnownSecrets
from repro.redact.secret_names import NameKind, is_placeholder, kind_of_name, looks_random, must_mask, words_of
from repro.redact.shapes import MASK, SHAPES, Shape, rule_of

_KEEP_MASKS = re.compile(f"({MASK.pattern})")
_KEY_BLOCK_BEGINS = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_BLOCK_ENDS = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")
_KEY_BLOCK_LINE = re.compile(r"[A-Za-z0-9+/=]{16,}")
_LONGEST_KEY_BLOCK = 200  # lines; a 16-kbit RSA key has 198
_PATH_BEGINS = ("/", "~/", "./", "../")
_LINES_AT_ONCE = 64
_ASSIGNED = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)", re.DOTALL)
# vLLM's --api-key takes several values (nargs="+"), so everything up to the next flag belongs to it.
_MANY_VALUES = frozenset({"api-key", "api_key"})


class Redactor:
    """Masks secrets. `known_secrets` maps a name to a value that is masked wherever it stands.

    `counts` says how many masks each rule has set. One redactor serves one document or capture; it may be used from
    several threads, but numbers are deterministic only in one.
    """

    def __init__(self, known_secrets: Mapping[str, str] | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._numbers: dict[str, str] = {}
        self._last_number: Counter[str] = Counter()
        self._known = KnownSecrets()
        self._lock = threading.RLock()
        for name, value in (known_secrets or {}).items():
            self._known.add(rule_of_name(name), value)

    def text(self, text: str) -> str:
        """Mask every secret in free text; the number of lines stays."""
        with self._lock:
            while True:
                parts = _KEEP_MASKS.split(text)  # odd places are masks already set
                done = "".join(part if i % 2 else self._pass(part) for i, part in enumerate(parts))
                if done == text:
                    return text
                text = done

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Mask a log in constant memory, one line out for one line in; a key block may span lines.

        Reads up to 64 lines ahead: most lines hold nothing, and asking for many at once is several times faster.
        """
        source = iter(lines)
        inside = 0
        while block := list(islice(source, _LINES_AT_ONCE)):
            if not inside and not self._may_change("\n".join(block)):
                yield from block
                continue
            for line in block:
                if inside:
                    ended = _KEY_BLOCK_ENDS.search(line) is not None
                    line = _KEY_BLOCK_LINE.sub(lambda m: self._mask(m.group(), "private_key"), line)
                    inside = 0 if ended else inside - 1
                elif _KEY_BLOCK_BEGINS.search(line) and not _KEY_BLOCK_ENDS.search(line):
                    inside = _LONGEST_KEY_BLOCK
                yield self.text(line)

    def url(self, url: str) -> str:
        """Mask user information and signed or telling parameters of one URL."""
        return self.text(url)

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Keep allowed names, keep secret names with a masked value, leave every other name out. Sorted by name."""
        kept: dict[str, str] = {}
        for name in sorted(environment):
            value = environment[name]
            if is_secret_name(name):
                kept[name] = self._secret_variable(name, value)
            elif is_launch_name(name):
                kept[name] = value
        return {name: self.text(value) for name, value in kept.items()}

    def argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Mask an argument list: the values of secret flags, `NAME=value` pairs, and secrets by shape."""
        # A second look, since a secret may stand in clear before the flag that tells it.
        return tuple(self.text(argument) for argument in self._by_flag(argv))

    def _by_flag(self, argv: Sequence[str]) -> list[str]:
        done: list[str] = []
        flag, taken = "", 0
        for argument in argv:
            # Right after a flag, one dash may begin its value (a password); two dashes never do.
            if argument.startswith("--") or (argument.startswith("-") and (not flag or taken)):
                name, equals, value = argument.partition("=")
                flag, taken = "" if equals else name.lstrip("-"), 0
                done.append(f"{name}={self._value(name, value)}" if equals else argument)
                continue
            done.append(self._value(flag, argument))
            taken += 1
            if flag not in _MANY_VALUES:
                flag = ""
        return done

    def json(self, value: Any) -> Any:
        """Mask a JSON value of any depth; keys stay."""
        return self._json("", value)

    def _json(self, key: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self.text(str(k)): self._json(str(k), v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._json(key, item) for item in value]
        if isinstance(value, str):
            return self._mask(value, rule_of_name(key)) if self._told_by_name(key, value) else self.text(value)
        if type(value) is int and words_of(key)[-1:] in (("password",), ("passwd",), ("secret",)):
            return self._mask(str(value), rule_of_name(key))
        return value

    def _told_by_name(self, name: str, value: str) -> bool:
        return MASK.fullmatch(value) is None and must_mask(name, value)

    def _value(self, flag: str, value: str) -> str:
        """One argument that follows a flag (or none): itself, or a `NAME=value` pair as docker's -e takes it."""
        if kind_of_name(flag) is not NameKind.HARMLESS:
            return self._learned(value, rule_of_name(flag)) if self._told_by_name(flag, value) else self.text(value)
        pair = _ASSIGNED.fullmatch(value)
        if pair and not is_placeholder(pair["value"]) and is_secret_name(pair["name"]):
            return f"{pair['name']}={self._secret_variable(pair['name'], pair['value'])}"
        return self.text(value)

    def _secret_variable(self, name: str, value: str) -> str:
        if not value or MASK.fullmatch(value):
            return value
        if kind_of_name(name) is NameKind.HARMLESS:  # masked for its group alone: AWS_REGION is no word to hunt for
            return self._mask(value, rule_of_name(name))
        return self._learned(value, rule_of_name(name))

    def _learned(self, value: str, rule: str) -> str:
        """Mask a whole value and look for it in everything that comes later.

        A path to where the secret lies is not looked for: it would blank out half of a log.
        """
        if MASK.fullmatch(value):
            return value
        if not value.startswith(_PATH_BEGINS) or looks_random(value):
            with self._lock:
                self._known.add(rule, value)
        return self._mask(value, rule)

    def _may_change(self, text: str) -> bool:
        lowered = text.lower()
        shaped = any(shape.may_be_in(lowered) and shape.pattern.search(text) for shape in SHAPES)
        return shaped or may_assign(text) or self._known.are_in(text)

    def _pass(self, text: str) -> str:
        text = mask_assignments(text, self._mask_in_text)
        lowered = text.lower()
        for shape in SHAPES:
            if shape.may_be_in(lowered):
                text = self._shape(shape, text)
        parts = _KEEP_MASKS.split(text)
        return "".join(part if i % 2 else self._known.mask(part, self._mask_in_text) for i, part in enumerate(parts))

    def _shape(self, shape: Shape, text: str) -> str:
        def replace(match: re.Match[str]) -> str:
            secret = match.group("secret")
            if MASK.search(secret):  # set in this very pass; the next one sees the text around it alone
                return match.group()
            start = match.start("secret") - match.start()
            end = match.end("secret") - match.start()
            return match.group()[:start] + self._mask_in_text(secret, shape.rule) + match.group()[end:]

        return shape.pattern.sub(replace, text)

    def _mask(self, secret: str, rule: str) -> str:
        with self._lock:
            mask = self._numbers.get(secret)
            if mask is None:
                rule = rule_of(secret) or rule
                self._last_number[rule] += 1
                mask = f"***masked:{rule}:{self._last_number[rule]}***"
                self._numbers[secret] = mask
            self.counts[mask.split(":")[1]] += 1
        return mask

    def _mask_in_text(self, secret: str, rule: str) -> str:
        """As `_mask`, keeping the number of lines: line numbers in a log are evidence."""
        return self._mask(secret, rule) + "\n" * secret.count("\n")
