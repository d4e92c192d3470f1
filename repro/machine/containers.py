"""Containers, read through the Docker API: what was started, with which environment, and what it said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

from repro.errors import DockerUnavailable, UsageError

# The start-up of a vLLM with many ranks prints a few thousand lines; the "non-default args" stand near the beginning.
_LOG_LINES = 20_000
_ANSWER_S = 10


class ContainerClient(Protocol):
    """The two calls of the Docker API that are needed here; `docker.APIClient` has them."""

    def inspect_container(self, container: str) -> dict[str, Any]: ...

    def logs(self, container: str, tail: int) -> bytes: ...


@dataclass(frozen=True)
class InspectedContainer:
    """A container as it was started; `argv` is entrypoint and arguments together, `log` its last lines."""

    id: str
    image: str
    image_id: str
    argv: tuple[str, ...]
    environment: dict[str, str]
    running: bool
    log: str


def inspect_container(name: str, client: ContainerClient | None = None) -> InspectedContainer:
    """A container by name or id, running or not. Raises UsageError for an unknown one, DockerUnavailable otherwise."""
    import docker.errors

    client = client or _connect()
    try:
        facts = client.inspect_container(name)
        log = client.logs(name, tail=_LOG_LINES) if facts["State"].get("StartedAt", "").strip("0-:TZ.") else b""
    except docker.errors.NotFound:
        raise UsageError(
            f"Docker knows no container {name!r}",
            "see `docker ps --all`; one started with --rm is gone with its log once it has ended",
        ) from None
    except (docker.errors.DockerException, OSError) as error:
        raise DockerUnavailable(f"Docker does not tell about {name!r}: {error}", _MEND) from error
    pairs = (pair.partition("=") for pair in facts["Config"].get("Env") or ())
    return InspectedContainer(
        id=facts["Id"],
        image=facts["Config"].get("Image", ""),
        image_id=facts.get("Image", ""),
        argv=(facts["Path"], *facts["Args"]),
        environment={key: value for key, _, value in pairs},
        running=bool(facts["State"].get("Running")),
        log=log.decode("utf-8", "replace"),
    )


_MEND = "is the daemon running, and may you use its socket (docker info)?"


def _connect() -> ContainerClient:
    import docker
    import docker.errors

    try:
        connected = docker.from_env(timeout=_ANSWER_S, version="auto")
    except (docker.errors.DockerException, OSError) as error:
        raise DockerUnavailable(f"Docker does not answer: {error}", _MEND) from error
    return cast("ContainerClient", connected.api)
