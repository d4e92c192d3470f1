"""Version numbers as vLLM, drivers and CUDA write them: their leading numbers, and whether one is at least another.

No general version grammar: what stands after the numbers only says "before that release" (rc, dev) or nothing.
"""

from __future__ import annotations

import re

_BEFORE = re.compile(r"(a|b|c|rc|alpha|beta|pre|dev)", re.IGNORECASE)
# What setuptools-scm writes for a checkout without tags: the number says nothing about what is in it.
_UNTAGGED = re.compile(r"^v?0\.(0|1)\.dev|^v?0\.1\.post\d+\.dev|^v?0\.0\.0(\W|$)")
_LOCAL = re.compile(r"\+(.+)$")


def release(version: str) -> tuple[int, ...]:
    """The leading numbers without trailing zeros: (0, 27, 1) for "0.27.1rc1.dev4", (0, 28) for "v0.28.0"."""
    numbers: list[int] = []
    for part in version.lstrip("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def at_least(version: str, minimum: str) -> bool | None:
    """Whether a version is that one or newer; a release candidate is older than its release. None where the number
    cannot be compared: a build of a checkout without tags, or no number at all.
    """
    seen, wanted = release(version), release(minimum)
    if not seen or _UNTAGGED.match(version):
        return None
    if seen == wanted:
        rest = _LOCAL.sub("", version).lstrip("v").lstrip("0123456789.")
        return not _BEFORE.match(rest)
    return seen > wanted


def local_part(version: str) -> str:
    """What stands behind the plus: "cu130" for "2.11.0+cu130", "" without one."""
    found = _LOCAL.search(version)
    return found[1] if found else ""


def between_releases(version: str) -> bool:
    """True for a version that no release has: a development number or a commit behind the plus."""
    return ".dev" in version or bool(re.match(r"g[0-9a-f]{6,}", local_part(version)))
