"""The shape of a line: what stays the same when the same fault happens on another run or another machine."""

from __future__ import annotations

import re

from repro.triage.framing import frame

_LONGEST = 300
_LONGEST_READ = 4000  # characters; what follows tells no two faults apart
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"https?://\S+"), "<url>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"(?:/[\w.@+~-]+){2,}/?"), "<path>"),
    (re.compile(r"\b(?:chatcmpl|cmpl|req)-[\w-]+"), "<id>"),
    (re.compile(r"\[?\b(?:\d{1,3}\.){3}\d{1,3}\b\]?(?::\d+)?"), "<address>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<hex>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b"), "<hex>"),
    (re.compile(r"(?<![A-Za-z])[-+]?\d[\d,]*(?:\.\d+)?"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def template(line: str) -> str:
    """`line` without its prefixes, its numbers, addresses, hex, paths and times replaced by what they are."""
    shape = frame(line[:_LONGEST_READ].rstrip("\r\n")).message
    for pattern, name in _RULES:
        shape = pattern.sub(name, shape)
    return shape.strip()[:_LONGEST]
