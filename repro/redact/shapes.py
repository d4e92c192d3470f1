"""What a secret looks like by itself: one row a shape, the easiest part of this room to extend.

In each pattern the group `secret` is what the mask replaces; everything else stays, so that a reader still sees what
kind of thing stood there and where.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# The mask is visible and carries no trace of the value: a hash of a short secret can be found by trying.
MASK = re.compile(r"\*\*\*masked:[a-z0-9_]+:\d+\*\*\*")


@dataclass(frozen=True)
class Shape:
    """One recognisable form. `rule` is the name in masks and counts.

    `needs` are lower-case literals of which one must be in the text; without one the pattern is not tried, which
    makes reading a long log ten times faster.
    """

    rule: str
    needs: tuple[str, ...]
    pattern: re.Pattern[str]

    def may_be_in(self, lowered: str) -> bool:
        """Whether the (lower-cased) text is worth a search."""
        return any(literal in lowered for literal in self.needs)


def _shape(rule: str, needs: str, pattern: str) -> Shape:
    return Shape(rule, tuple(needs.split()), re.compile(pattern))


# A word character before the prefix would make it part of something else (`task-...` holds `sk-`); unless it ends a
# colour code, an escaped line end or a URL escape.
_START = r"(?:(?<![A-Za-z0-9])|(?<=[\[;0-9][0-9]m)|(?<=\[m)|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2}))"
_KEY_BLOCK_BODY = r"(?:[\s\S]{0,16000}?-----END [A-Z ]*PRIVATE KEY-----|(?:[A-Za-z0-9+/=\s]|\\n)*)"

SHAPES: tuple[Shape, ...] = (
    _shape("private_key", "-----begin", rf"(?P<secret>-----BEGIN [A-Z ]*PRIVATE KEY-----{_KEY_BLOCK_BODY})"),
    # What encloses a whole value comes before the value's own shape, or its ends would be left standing.
    _shape("url_password", "://", r"(?i:\b[a-z][a-z0-9+.-]*://)[^\s/@:\"']*:(?P<secret>[^\s/\"'<>]+)(?=@)"),
    _shape("url_token", "://", r"(?i:\b[a-z][a-z0-9+.-]*://)(?P<secret>[^\s/@:\"'*]{16,})(?=@)"),
    _shape(
        "url_parameter",
        "sig= signature= x-amz- key= token= auth= code=",
        r"(?i:[?&](?:sig|signature|x-amz-(?:signature|credential|security-token)|key|token|auth|code)=)"
        r"(?P<secret>[^&\s\"'#<>]{6,})",
    ),
    _shape(
        "authorization",
        "authorization",
        r"(?i:\bauthorization[\"']?\s*[:=]\s*[\"']?(?:basic|digest|bearer|token)\s+)(?P<secret>[^\s\"',]+)",
    ),
    _shape("hf_token", "hf_ api_org_", _START + r"(?P<secret>(?:hf|api_org)_[A-Za-z0-9]{16,})"),
    _shape("openai_key", "sk-", _START + r"(?P<secret>sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{16,})"),
    _shape(
        "aws_key_id", "akia asia aroa aida", _START + r"(?P<secret>(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16})(?![A-Za-z0-9])"
    ),
    _shape("jwt", "eyj", _START + r"(?P<secret>eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?)"),
    _shape(
        "github_token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        _START + r"(?P<secret>(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}))",
    ),
    _shape("gitlab_token", "glpat-", _START + r"(?P<secret>glpat-[A-Za-z0-9_-]{16,})"),
    _shape("slack_token", "xox", _START + r"(?P<secret>xox[abeoprs]-[A-Za-z0-9-]{10,})"),
    _shape(
        "slack_webhook", "hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9/_-]{16,})"
    ),
    _shape("google_key", "aiza", _START + r"(?P<secret>AIza[A-Za-z0-9_-]{30,})"),
    _shape("nvidia_key", "nvapi-", _START + r"(?P<secret>nvapi-[A-Za-z0-9_-]{20,})"),
    _shape("bearer", "bearer", r"(?i:\bbearer\s+)(?P<secret>(?=[A-Za-z._~+/=-]*\d)[A-Za-z0-9._~+/=-]{8,})"),
)


def holds_secret(text: str) -> bool:
    """Whether any shape is in the text."""
    return any(shape.pattern.search(text) for shape in SHAPES)


def rule_of(value: str) -> str | None:
    """The rule of the shape that the whole value has, or None."""
    for shape in SHAPES:
        match = shape.pattern.fullmatch(value)
        if match and match.group("secret") == value:
            return shape.rule
    return None
