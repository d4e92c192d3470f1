"""The whole environment of a server: a small base, what the launch says, what it passes through, and our mark."""

from __future__ import annotations

from collections.abc import Mapping

from repro.domain.launch import Launch
from repro.errors import UsageError

# What any program needs to find its user, its files and its language; nothing else of repro's own environment leaks in.
BASE_NAMES = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR")


def launch_environment(launch: Launch, inherited: Mapping[str, str], mark: tuple[str, str]) -> dict[str, str]:
    """Later wins: base, passed through by name, the launch's own, the command's own, the mark.

    Raises UsageError for a name to pass through that is not set in `inherited`.
    """
    passed = (*launch.environment_from, *launch.command.environment_from)
    written = {**dict(launch.environment), **dict(launch.command.environment)}
    for name in passed:
        if name not in inherited and name not in written:
            raise UsageError(
                f"{name} is to be passed through to the server, but it is not set here.",
                f"Set it (export {name}=...), or take it out of env_from.",
            )
    names = (*BASE_NAMES, *passed)
    base = {name: inherited[name] for name in names if name in inherited}
    return {**base, **written, mark[0]: mark[1]}
