"""Secrets that only their name gives away, in free text: `password: x`, `"api_key": "x"`, `HF_TOKEN=x`, `--api-key x`.

The pattern finds *candidates* (a name that ends in a telling word, a separator, a value); `secret_names` decides. The
name part starts only where no name character stands before it, so a long line is read once; and not after a slash,
since `/etc/passwd: permission denied` is a path.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from repro.redact.environment_names import is_secret_name
from repro.redact.secret_names import is_placeholder, must_mask, words_of

_NAME = (
    r"(?<![A-Za-z0-9_./-])(?P<name>[A-Za-z0-9_.-]*"
    r"(?i:token|secrets?|passw(?:or)?d|passphrase|pwd|(?:api |access |secret |private )?key(?:_id)?|apikey|credentials?"
    r"|authorization|cookie))"
)
_NO_SCHEME = r"(?!(?i:bearer|basic|digest|token)\b)"
_SEPARATOR = r"(?P<separator>\\?[\"']?\s{0,4}(?:=>|[:=])\s{0,4})"
_DOUBLE = r"\\?\"(?P<double>(?:[^\"\\\n]|\\.)*?)\\?\""
_SINGLE = r"\\?'(?P<single>(?:[^'\\\n]|\\.)*?)\\?'"
_LIST = r"\[(?P<list>[^\]\n]+)\]"
_BARE = r"(?P<bare>(?![{\[(<*])[^\s\"'&]*[^\s\"'&,;)}\]\\])"
_VALUE = rf"(?:{_DOUBLE}|{_SINGLE}|{_LIST}|{_BARE})"

# The end of a telling name with its separator, on lower-cased text: whether the costly search is worth while.
_MAY_ASSIGN = re.compile(
    r"(?:token|secret|secrets|word|passwd|passphrase|pwd|key|key_id|credential|credentials|authorization|cookie)"
    r"\\?[\"']?\s{0,4}[:=]"
)
_ASSIGNMENT = re.compile(_NAME + _SEPARATOR + _NO_SCHEME + _VALUE)
_FLAG = re.compile(
    r"(?<![^\s\"'=`(])--?(?P<name>[A-Za-z0-9_.-]*(?i:token|secret|password|passwd|api[-_]?key|key))"
    rf"[ \t]+(?!-)(?:{_DOUBLE}|{_SINGLE}|(?P<bare>[^\s\"'`]{{4,}}))"
)
_VALUE_GROUPS = ("double", "single", "list", "bare")


_ESCAPE_BEFORE = {"[": re.compile(r"\d*m"), ";": re.compile(r"\d*m"), "\\": re.compile(r"[nrt]")}


def _readings(match: re.Match[str]) -> tuple[str, ...]:
    """The name as it stands, and without the end of a colour code (`[0m`) or escaped line end (`\\n`) before it."""
    name, start = match["name"], match.start("name")
    escape = _ESCAPE_BEFORE.get(match.string[max(0, start - 1) : start])
    found = escape.match(name) if escape else None
    return tuple(reading.lstrip("-.") for reading in ((name, name[found.end() :]) if found else (name,)))


def _is_secret(name: str, value: str) -> bool:
    if name.isupper() and is_secret_name(name):
        return not is_placeholder(value)
    return must_mask(name, value)


def mask_assignments(text: str, mask: Callable[[str, str], str]) -> str:
    """Replace each secret value with `mask(value, rule)`; the rule is the name in lower case."""

    def replace(match: re.Match[str]) -> str:
        groups = match.groupdict()
        group = next((g for g in _VALUE_GROUPS if groups.get(g)), None)
        value = groups[group] if group else ""
        name = next((reading for reading in _readings(match) if _is_secret(reading, value)), None)
        if group is None or name is None:
            return match.group()
        start, end = match.start(group) - match.start(), match.end(group) - match.start()
        whole = match.group()
        return whole[:start] + mask(value, rule_of_name(name)) + whole[end:]

    if _MAY_ASSIGN.search(text.lower()):
        text = _ASSIGNMENT.sub(replace, text)
    return _FLAG.sub(replace, text) if "-" in text else text


def may_assign(text: str) -> bool:
    """Whether `mask_assignments` could change the text; cheap, and sometimes wrongly true."""
    return _MAY_ASSIGN.search(text.lower()) is not None or ("-" in text and _FLAG.search(text) is not None)


def rule_of_name(name: str) -> str:
    """`--api-key` and `API_KEY` as the rule `api_key`; only the last three words, so that a rule stays short."""
    return "_".join(words_of(name)[-3:]) or "secret"
