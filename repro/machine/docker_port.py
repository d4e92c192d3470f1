"""What repro asks of a Docker daemon, as three small ports; `docker_api` is the real one, the tests have a fake.

Answers are the daemon's own JSON objects (Docker Engine API), so that nothing is lost on the way and one contract test
holds for fake and daemon. Only `run_aside` makes anything, and takes it away again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

ASIDE_LABEL = "repro.aside"
"""The label of throw-away containers; its value names the one snapshot that may remove them."""


class NoSuchObject(LookupError):
    """The daemon knows no container, image or program of this name; the text is a sentence for the reader."""


@dataclass(frozen=True)
class Ran:
    """What a program inside a container came to; `code` is None when it was still running at the deadline."""

    code: int | None
    output: str


@dataclass(frozen=True)
class Aside:
    """A throw-away container: no GPU, no network, nothing writable. `binds` as `source:destination:ro`."""

    image_id: str
    argv: tuple[str, ...]
    label: str
    binds: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()


class ContainerReader(Protocol):
    """The daemon's objects. All raise DockerUnavailable when it does not answer, NoSuchObject for an unknown name."""

    def daemon(self) -> Mapping[str, Any]:
        """`{"version": …, "info": …}`: the answers of `/version` and `/info`."""
        ...

    def listed(self) -> Sequence[Mapping[str, Any]]:
        """All containers, running or not, newest first, as in `/containers/json?all=1`."""
        ...

    def container(self, name: str) -> Mapping[str, Any]:
        """One container by name or id, as `docker inspect` shows it."""
        ...

    def image(self, reference: str) -> Mapping[str, Any]:
        """One image by tag, digest or id, as `docker image inspect` shows it."""
        ...


class ContainerHistory(Protocol):
    """What containers have said and what happened to them."""

    def log(self, container: str, tail: int | None = None) -> Iterator[bytes]:
        """Standard output and error together, from the beginning or the last `tail` lines, up to now."""
        ...

    def events(self, since: float, until: float) -> Sequence[Mapping[str, Any]]:
        """What befell containers between two Unix times, oldest first; daemons remember a few hundred events."""
        ...


class ContainerPrograms(Protocol):
    """Short programs inside. The program must end by itself: a daemon cannot end an `exec`."""

    def execute(self, container: str, argv: Sequence[str], deadline_s: float) -> Ran:
        """Run `argv` in a running container."""
        ...

    def run_aside(self, aside: Aside, deadline_s: float) -> Ran:
        """Run a throw-away container to its end, or to the deadline, and remove it, and it alone, by its label."""
        ...


class Docker(ContainerReader, ContainerHistory, ContainerPrograms, Protocol):
    """All of it."""
