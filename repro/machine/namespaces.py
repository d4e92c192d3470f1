"""Network namespaces of this host that stand for nodes: how to run something in one, and its address there."""

from __future__ import annotations

import re
from dataclasses import dataclass

from repro.errors import UsageError
from repro.machine.subprocesses import run

_ANSWER_S = 10.0
_ROW = re.compile(r"^\d+: (?P<interface>[^\s@]+)\S*\s+inet (?P<address>[\d.]+)/")


@dataclass(frozen=True)
class Namespace:
    """A named network namespace with its first address that is not loopback, and that address's interface."""

    name: str
    address: str
    interface: str

    @property
    def words(self) -> tuple[str, ...]:
        """What stands in front of a command that is to run in it; takes root."""
        return ("ip", "netns", "exec", self.name)


def find_namespace(name: str) -> Namespace:
    """Raises UsageError for a namespace that is not there, or has no address; MissingProgram without `ip`."""
    done = run(("ip", "-netns", name, "-oneline", "-4", "address", "show", "scope", "global"), _ANSWER_S)
    if not done.succeeded:
        raise UsageError(
            f"The network namespace {name!r} cannot be used: {done.stderr.strip() or 'no answer'}",
            "`ip netns list` shows those that are there; `ip netns add` makes one. Both take root.",
        )
    for line in done.stdout.splitlines():
        if found := _ROW.match(line):
            return Namespace(name, found["address"], found["interface"])
    raise UsageError(
        f"The network namespace {name!r} has no IPv4 address that others could reach.",
        f"Give it one: ip -n {name} address add ADDRESS/24 dev INTERFACE, and set the interface up.",
    )
