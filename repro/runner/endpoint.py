"""Attaches to a server that somebody else runs: requests can be tried on it, launches cannot; it is never stopped."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

from repro.domain.launch import Launch
from repro.domain.variable import Kind, Variable
from repro.errors import ReproError, UsageError
from repro.machine.family import Activity
from repro.runner.port import Ending, Place, StopReport
from repro.triage import ExitEvidence

_CONNECT_S = 5.0
_HINT = "Give the command without --endpoint, so that repro starts servers itself, or take the variable out."


def must_be_request_variables(variables: Iterable[Variable]) -> None:
    """Raises UsageError naming the variables that only a new server could change."""
    launch = [variable.name for variable in variables if variable.kind is Kind.LAUNCH]
    if launch:
        raise UsageError(
            f"On a server that somebody else runs only requests can be varied, not {', '.join(launch)}: that takes a "
            "new server.",
            _HINT,
        )


class EndpointEngine:
    """ "Starts" by attaching to `base_url`. The launch of the first start is taken for that of the running server."""

    def __init__(self, base_url: str, new_id: Callable[[], str] = lambda: secrets.token_hex(6)) -> None:
        """Raises UsageError for what is no http(s) address."""
        parts = urlsplit(base_url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise UsageError(
                f"{base_url!r} is no address of a server.", "Write it like http://127.0.0.1:8000, without /v1."
            )
        path = parts.path.rstrip("/").removesuffix("/v1")
        self._base_url = f"{parts.scheme}://{parts.netloc}{path}"
        self._id = new_id()  # one for all trials, since no trial meets a fresh server
        self._launch: str | None = None

    @property
    def base_url(self) -> str:
        return self._base_url

    def start(self, launch: Launch, place: Place) -> AttachedServer:
        """Raises UsageError for a launch other than the first, since nothing is launched here, and ReproError when
        nobody listens: that says nothing about any setting.
        """
        if self._launch is None:
            self._launch = launch.digest
        if launch.digest != self._launch:
            raise UsageError(f"{self._base_url} cannot be started anew with other settings.", _HINT)
        self._must_listen()
        place.log.parent.mkdir(parents=True, exist_ok=True)
        place.log.touch(exist_ok=False)
        return AttachedServer(self._id, self._base_url, place.log)

    def _must_listen(self) -> None:
        parts = urlsplit(self._base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname or "", port), _CONNECT_S).close()
        except OSError as error:
            raise ReproError(
                f"Nobody answers at {self._base_url}: {error.strerror or error}.",
                "See whether that server still runs; repro did not start it and does not stop it.",
            ) from error


class AttachedServer:
    """Somebody else's server, of which only the answers are seen; see `runner.port.Server`. Its log stays empty."""

    def __init__(self, id: str, base_url: str, log: Path) -> None:
        self._id = id
        self._base_url = base_url
        self._log = log

    @property
    def id(self) -> str:
        return self._id

    @property
    def base_url(self) -> str:
        return self._base_url

    @property
    def log(self) -> Path:
        return self._log

    def exit_evidence(self) -> ExitEvidence | None:
        """Its end is not seen from here: requests that fail tell of it."""
        return None

    def stranger(self) -> str | None:
        return None

    def activity(self) -> Activity:
        return Activity()

    def where_it_waits(self) -> tuple[str, ...]:
        return ()

    def notes(self) -> tuple[str, ...]:
        return ()

    def stop(self) -> StopReport:
        """Detaches; the server goes on."""
        return StopReport(Ending.BY_ITSELF, None, 0.0)
