"""Starts, watches and removes containers by the client that production itself was started with.

The client and not the SDK: a `docker run` line is only understood whole by the program that it was written for (podman
and nerdctl are others), and its context, host and sudo say which daemon is meant. What it says goes into the server's
log, so that the daemon's own words are judged like every other line.

A client that still waits for its daemon when repro is killed goes on: it holds the log (see `family`) until it is done.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from repro.errors import DockerUnavailable, MissingProgram
from repro.machine.detached import DetachedProcess, start_detached
from repro.machine.subprocesses import Completed, run

ANSWER_S = 30.0
# What tells a client which daemon is meant; none of it is a secret.
DAEMON_NAMES = (
    *("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"),
    *("CONTAINER_HOST", "CONTAINERD_ADDRESS", "CONTAINERD_NAMESPACE", "XDG_RUNTIME_DIR"),
)
# Making a container may mean to unpack nothing, but a busy daemon takes its time; starting waits for hooks and mounts.
MAKE_S = 180.0
_DOWN = (
    "Cannot connect to the Docker daemon",
    "permission denied while trying to connect",
    "error during connect",
    "failed to connect to the docker API",
    "Cannot connect to Podman",
)


@dataclass(frozen=True)
class ContainerState:
    """What the daemon tells of one container. `pid` is 0 where it does not run, `error` the daemon's own words.

    `ports` maps "8000/tcp" to the host's port.
    """

    id: str
    image_id: str
    status: str
    running: bool
    code: int
    oom_killed: bool
    error: str
    restarts: int
    pid: int
    ports: Mapping[str, int]

    @property
    def never_ran(self) -> bool:
        return not self.running and self.status == "created"


class ContainerClient:
    """One client program, such as ("docker",) or ("sudo", "docker", "-H", "ssh://node"), with its own environment.

    Every method raises DockerUnavailable when the daemon does not answer and MissingProgram without the client.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._words = tuple(words)
        self._environment = dict(environment)

    def must_answer(self) -> None:
        """Raises DockerUnavailable unless the daemon answers."""
        self._ask("info", "--format", "{{.ID}}")

    def image_id(self, reference: str) -> str | None:
        """The id of an image that is here, None for one that is not."""
        done = self._asked("image", "inspect", "--format", "{{.Id}}", reference)
        return done.stdout.strip() or None if done.succeeded else None

    def create(self, options: Sequence[str], mark: Mapping[str, str], log: IO[bytes]) -> bool:
        """Make a container; what the client complains of goes into `log`. Whether there is one now."""
        return self._tell(("create", *options), mark, log)

    def start(self, name: str, mark: Mapping[str, str], log: IO[bytes]) -> bool:
        """Start a container that was made. Whether it was."""
        return self._tell(("start", name), mark, log)

    def follow(self, name: str, mark: Mapping[str, str], log: IO[bytes], since: str | None = None) -> DetachedProcess:
        """Copy the container's output, from its beginning or from `since` (Unix seconds), into `log` until it ends."""
        words = (*self._words, "logs", "--follow", *(("--since", since) if since else ()), name)
        return start_detached(words, {**self._environment, **mark}, None, log)

    def state(self, name: str) -> ContainerState | None:
        """What became of a container, None where there is none of this name."""
        done = self._asked("container", "inspect", name)
        if not done.succeeded:
            return None
        return _state(json.loads(done.stdout)[0])

    def labelled(self, label: str) -> tuple[str, ...]:
        """The ids of all containers, running or not, that carry `label` ("name=value")."""
        return tuple(self._ask("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={label}").split())

    def signal(self, name: str, signal: str) -> None:
        """Send the container's first process a signal ("TERM"); nothing happens if it has ended."""
        self._asked("kill", "--signal", signal, name)

    def remove(self, name: str) -> None:
        """Kill it if it runs, and take it away with its anonymous volumes; nothing happens if there is none."""
        self._asked("rm", "--force", "--volumes", name)

    def top(self, name: str, columns: str) -> tuple[str, ...]:
        """A line for each process inside, as `ps -eo columns` of the daemon's machine prints it; empty where not."""
        done = self._asked("top", name, "-eo", columns)
        return tuple(done.stdout.splitlines()[1:]) if done.succeeded else ()

    def _ask(self, *words: str) -> str:
        done = self._asked(*words)
        if not done.succeeded:
            raise _unavailable(done.stderr or done.stdout or f"no answer within {ANSWER_S:g} s")
        return done.stdout

    def _asked(self, *words: str) -> Completed:
        """Raises DockerUnavailable for a daemon that is down or silent; any other refusal is the caller's matter."""
        done = run((*self._words, *words), ANSWER_S, self._environment)
        if done.timed_out:
            raise _unavailable(f"`{' '.join((*self._words, *words[:2]))}` had no answer within {ANSWER_S:g} s")
        if not done.succeeded and any(sign in done.stderr for sign in _DOWN):
            raise _unavailable(done.stderr)
        return done

    def _tell(self, words: Sequence[str], mark: Mapping[str, str], log: IO[bytes]) -> bool:
        try:
            process = subprocess.Popen(
                [*self._words, *words],
                env={**self._environment, **mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        except OSError as error:
            raise MissingProgram(
                f"Cannot start {self._words[0]!r}: {error.strerror or error}.", "Install it."
            ) from error
        try:
            return process.wait(MAKE_S) == 0
        except subprocess.TimeoutExpired:
            raise _unavailable(f"`{' '.join((*self._words, words[0]))}` was not done within {MAKE_S:g} s") from None
        finally:
            # Ended here only where it did not end by itself: at the time limit, or on Ctrl-C.
            if process.poll() is None:
                process.kill()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ANSWER_S)


def last_words(log: Path, most: int = 2000) -> str:
    """The end of what clients have complained of so far."""
    with log.open("rb") as file:
        return file.read()[-most:].decode("utf-8", "replace").strip()


def _unavailable(words: str) -> DockerUnavailable:
    return DockerUnavailable(
        f"Docker does not answer: {' '.join(words.split())[:300]}",
        "Is the daemon running, and may you use its socket (docker info)? It takes root or the group docker.",
    )


def _state(facts: Mapping[str, Any]) -> ContainerState:
    state, ports = facts["State"], (facts.get("NetworkSettings") or {}).get("Ports") or {}
    published = {name: int(held[0]["HostPort"]) for name, held in ports.items() if held and held[0].get("HostPort")}
    return ContainerState(
        id=str(facts["Id"]),
        image_id=str(facts.get("Image", "")),
        status=str(state.get("Status", "")),
        running=bool(state.get("Running")),
        code=int(state.get("ExitCode") or 0),
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        restarts=int(facts.get("RestartCount") or 0),
        pid=int(state.get("Pid") or 0),
        ports=published,
    )
