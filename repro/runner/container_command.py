"""The words that make production's container anew: all of its own options but those that belong to that one run.

Left out: its name (the first may still run), --rm and --restart (the end must stay to be looked at), where its log goes
(it has to be read), and pulling: every trial runs the same image by its id. vLLM's own port is moved to a free one of
the loopback address; other published ports, mounts, limits, GPUs and networks stay as production wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from repro.domain.command import Command
from repro.domain.command.container import Container
from repro.domain.command.flag import Flag
from repro.domain.launch import Launch
from repro.errors import UsageError
from repro.runner.listen import LOOPBACK, on_free_port

LABEL = "repro.server"
_VLLM_PORT = "8000"
_OF_ONE_RUN = frozenset(
    "--rm --rmi --replace --detach --detach-keys --sig-proxy --attach --name --restart --cidfile --pull "
    "--log-driver --log-opt --quiet".split()
)
_OF_A_NETWORK = frozenset("--network --network-alias --ip --ip6 --mac-address --hostname".split())


@dataclass(frozen=True)
class ContainerCommand:
    """`client` is the container program; `options` is all of `create` behind the name of the container.

    `port` is vLLM's inside, `published` whether it is published (to a free port) or shared with the host.
    `command` is vLLM's, as it is started.
    """

    client: tuple[str, ...]
    options: tuple[str, ...]
    port: str
    published: bool
    command: Command


def container_command(
    launch: Launch, container: Container, image: str, keep_listen: bool = False, network_words: tuple[str, ...] = ()
) -> ContainerCommand:
    """For a launch in `container`, of the image with the id `image`; `network_words` take the place of its own network.

    Raises UsageError for what cannot be reached.
    """
    network = "" if network_words else container.network or "bridge"
    if network == "none" or network.startswith("container:"):
        raise UsageError(
            f"A server with --network {network} cannot be reached from here.",
            "Use --network host or bridge, or attach to the running server with --endpoint.",
        )
    shared = network == "host"
    command = launch.command if keep_listen else _listening(launch.command, shared)
    written = command.flag("--port")
    port = written if isinstance(written, str) else _VLLM_PORT
    own = () if shared or keep_listen else ("--publish", f"{LOOPBACK}::{port}")
    kept = _options(container, None if keep_listen else port, moved_network=bool(network_words))
    options = (
        *_environment(launch),
        *network_words,
        *own,
        *kept,
        "--log-driver",
        "json-file",
        image,
        *_after_image(command),
    )
    return ContainerCommand(_client(container), options, port, not shared, command)


def _listening(command: Command, shared: bool) -> Command:
    if shared:
        return on_free_port(command).command
    # What is published must not listen on the container's loopback address alone; the address is inside of it.
    return command.with_flag("--uds", None).with_flag("--host", "0.0.0.0")  # noqa: S104


def _client(container: Container) -> tuple[str, ...]:
    """The client's words without `run`."""
    words = container.client[:-1] if container.client[-1:] == ("run",) else container.client
    return words[:-1] if words[-1:] == ("container",) else words


def _after_image(command: Command) -> tuple[str, ...]:
    container = command.container
    return command.argv() if container is None else command.argv()[len(container.argv()) :]


def _environment(launch: Launch) -> tuple[str, ...]:
    """The scenario's pairs in front of production's own; values that are passed through stay out of the words."""
    own = {name for name, _ in launch.command.environment} | set(launch.command.environment_from)
    pairs = [f"{name}={value}" for name, value in launch.environment if name not in own]
    names = [name for name in launch.environment_from if name not in own]
    return tuple(word for text in (*pairs, *names) for word in ("--env", text))


def _options(container: Container, moved_port: str | None, moved_network: bool) -> tuple[str, ...]:
    gone = _OF_ONE_RUN | _OF_A_NETWORK if moved_network else _OF_ONE_RUN
    return tuple(word for option in container.options if option.name not in gone for word in _kept(option, moved_port))


def _kept(option: Flag, moved_port: str | None) -> Iterator[str]:
    if option.name == "--publish" and _inner_port(option.value) == moved_port:
        return
    first, *rest = option.argv()
    if not first.startswith("--") and first.startswith("-"):
        head, equals, tail = first.partition("=")
        letters = head[1:]
        # Only in a cluster can -d hide; the letters of an attached value (-v/data:/data) are none.
        flags = letters if option.value is True or rest else letters[: _value_at(letters)]
        first = f"-{flags.replace('d', '')}{letters[len(flags) :]}{equals}{tail}"
        if first == "-":
            return
    yield first
    yield from rest


def _value_at(letters: str) -> int:
    """Where the letters of flags end in a word such as `itv/data:/data`."""
    return next((at for at, letter in enumerate(letters) if letter not in "ditPq"), len(letters))


def _inner_port(published: object) -> str:
    """The container's port of a published one: `8000`, `8000:8000`, `127.0.0.1:80:8000/tcp`."""
    return str(published).rpartition(":")[2].partition("/")[0]
