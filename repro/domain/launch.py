"""What it takes to start one server: a command and its environment, before a port has been chosen for it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from repro.domain.command import Command


@dataclass(frozen=True)
class Launch:
    """A command with everything that its environment may hold.

    `environment` are the fixed names and values of the scenario, below those written in the command itself;
    `environment_from` are names whose values are passed through from repro's own environment and never recorded.
    """

    command: Command
    environment: tuple[tuple[str, str], ...] = ()
    environment_from: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Twelve hex digits; two launches with equal digests may share one warm server."""
        facts = [self.command.argv(), self.command.environment, self.environment, self.environment_from]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]
