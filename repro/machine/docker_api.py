"""The real Docker daemon, by its SDK: every call has a time limit, every refusal becomes a sentence for the reader.

The daemon is found as the `docker` command finds it: DOCKER_HOST, else the local socket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from repro.errors import DockerUnavailable
from repro.machine.docker_port import ASIDE_LABEL, Aside, Docker, NoSuchObject, Ran

ANSWER_S = 10.0
_MEND = "is the daemon running, and may you use its socket (docker info)? It takes root or the group docker."
# An image whose default runtime is NVIDIA's would get every GPU; this value gives it none.
_NO_GPU = ("NVIDIA_VISIBLE_DEVICES=void", "CUDA_VISIBLE_DEVICES=")
# Importing PyTorch takes a tenth of this memory (bytes); its threads count as processes.
_CONFINED: Mapping[str, Any] = {
    "network_mode": "none",
    "read_only": True,
    "tmpfs": {"/tmp": ""},  # noqa: S108 - inside the throw-away container
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "mem_limit": 4 << 30,
    "pids_limit": 512,
}
T = TypeVar("T")


def connect(answer_s: float = ANSWER_S) -> Docker:
    """The daemon, once it has answered. Raises DockerUnavailable."""
    import docker
    import docker.errors

    def client(timeout: float) -> Any:
        return docker.from_env(timeout=timeout, version="auto").api  # type: ignore[arg-type]

    try:
        return DockerApi(client, answer_s)
    except (docker.errors.DockerException, OSError) as error:
        raise DockerUnavailable(f"Docker does not answer: {_line(error)}", _MEND) from error


class DockerApi:
    """The port on `docker.APIClient`, of which `client` makes one with a time limit for each call in seconds."""

    def __init__(self, client: Callable[[float], Any], answer_s: float) -> None:
        self._new_client = client
        self._client = client(answer_s)

    def daemon(self) -> Mapping[str, Any]:
        return {"version": self._ask(self._client.version), "info": self._ask(self._client.info)}

    def listed(self) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self._ask(lambda: self._client.containers(all=True))
        return found

    def container(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._ask(lambda: self._client.inspect_container(name), f"container {name!r}")
        return found

    def image(self, reference: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._ask(lambda: self._client.inspect_image(reference), f"image {reference!r}")
        return found

    def log(self, container: str, tail: int | None = None) -> Iterator[bytes]:
        def open_log() -> Iterator[bytes]:
            stream: Iterator[bytes] = self._client.logs(
                container, stream=True, follow=False, tail="all" if tail is None else tail
            )
            return stream

        return self._reading(self._ask(open_log, f"container {container!r}"))

    def events(self, since: float, until: float) -> Sequence[Mapping[str, Any]]:
        wanted = {"type": "container"}
        return self._ask(
            lambda: list(self._client.events(int(since), int(until) + 1, filters=wanted, decode=True)), "events"
        )

    def execute(self, container: str, argv: Sequence[str], deadline_s: float) -> Ran:
        client = self._new_client(deadline_s)

        def run() -> Ran:
            made = client.exec_create(container, list(argv))["Id"]
            output = client.exec_start(made)
            return Ran(client.exec_inspect(made)["ExitCode"], output.decode("utf-8", "replace"))

        return self._ask(run, f"container {container!r}")

    def run_aside(self, aside: Aside, deadline_s: float) -> Ran:
        return self._ask(lambda: self._run_aside(aside, deadline_s), f"image {aside.image_id!r}")

    def _run_aside(self, aside: Aside, deadline_s: float) -> Ran:
        client = self._client
        try:
            made = client.create_container(
                aside.image_id,
                list(aside.argv[1:]),
                entrypoint=[aside.argv[0]],
                environment=[*aside.environment, *_NO_GPU],
                labels={ASIDE_LABEL: aside.label},
                host_config=client.create_host_config(binds=list(aside.binds), **_CONFINED),
            )["Id"]
            client.start(made)
            code = self._code(made, deadline_s)
            return Ran(code, client.logs(made).decode("utf-8", "replace"))
        finally:
            for found in client.containers(all=True, filters={"label": f"{ASIDE_LABEL}={aside.label}"}):
                client.remove_container(found["Id"], force=True, v=True)

    def _code(self, container: str, deadline_s: float) -> int | None:
        with suppress(OSError):  # requests' time-outs are OSErrors
            return int(self._client.wait(container, timeout=deadline_s)["StatusCode"])
        return None

    def _reading(self, stream: Iterator[bytes]) -> Iterator[bytes]:
        while (chunk := self._ask(lambda: next(stream, None))) is not None:
            yield chunk

    def _ask(self, call: Callable[[], T], what: str = "") -> T:
        import docker.errors

        try:
            return call()
        except docker.errors.NotFound as error:
            raise NoSuchObject(f"Docker knows no {what}" if what else _line(error)) from None
        except docker.errors.APIError as error:
            raise NoSuchObject(f"Docker refuses {what}: {error.explanation or error}") from None
        except Exception as error:  # the SDK lets through what the libraries below it raise
            raise DockerUnavailable(f"Docker does not answer: {_line(error)}", _MEND) from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
