"""`docker run` and its relatives: the options in front of the image, kept exactly, with the ones that matter by
name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from repro.domain.command.flag import Flag
from repro.errors import UnresolvedWrapper

CLIENTS = ("docker", "podman", "nvidia-docker", "nerdctl")

_SHORT = {
    "-e": "--env",
    "-v": "--volume",
    "-p": "--publish",
    "-u": "--user",
    "-w": "--workdir",
    "-h": "--hostname",
    "-m": "--memory",
    "-l": "--label",
    "-c": "--cpu-shares",
    "-a": "--attach",
    "-d": "--detach",
    "-i": "--interactive",
    "-t": "--tty",
    "-P": "--publish-all",
    "-q": "--quiet",
    "--net": "--network",
}
_WITHOUT_VALUE = frozenset(
    "--detach --interactive --tty --publish-all --quiet --rm --privileged --init --read-only "
    "--no-healthcheck --oom-kill-disable --sig-proxy "
    "--disable-content-trust --replace --rmi --no-hosts --env-host --http-proxy "
    "--read-only-tmpfs --help".split()
)
_OFFICIAL = re.compile(r"(?:^|/)vllm/(vllm-openai[\w-]*)(?::([\w.-]+))?(?:@|$)")
_CLIENT_VALUES = frozenset(
    "-H --host -c --context --config -l --log-level --tlscacert --tlscert --tlskey --connection --url".split()
)


@dataclass(frozen=True)
class Container:
    """How a container is started. `client` is what was called ("docker", "run"; "sudo" in front included),
    `options` stand in written order, `entry` are the words that the image or `--entrypoint` puts in front of what
    is written after the image.
    """

    client: tuple[str, ...]
    options: tuple[Flag, ...]
    image: str
    entry: tuple[str, ...] = ()

    def option(self, name: str) -> str | None:
        """The last value of an option ("--name"), "true" for one without a value, None when absent."""
        values = self.every(name)
        return values[-1] if values else None

    def every(self, name: str) -> tuple[str, ...]:
        """All values of an option in written order; "true" stands for a value that was not written."""
        return tuple(f.value if isinstance(f.value, str) else "true" for f in self.options if f.name == name)

    @property
    def name(self) -> str | None:
        return self.option("--name")

    @property
    def gpus(self) -> str | None:
        return self.option("--gpus")

    @property
    def ipc(self) -> str | None:
        return self.option("--ipc")

    @property
    def shm_size(self) -> str | None:
        return self.option("--shm-size")

    @property
    def network(self) -> str | None:
        return self.option("--network")

    @property
    def user(self) -> str | None:
        return self.option("--user")

    @property
    def entrypoint(self) -> str | None:
        return self.option("--entrypoint")

    @property
    def mounts(self) -> tuple[str, ...]:
        """As written, of -v and of --mount."""
        return (*self.every("--volume"), *self.every("--mount"))

    @property
    def ports(self) -> tuple[str, ...]:
        return self.every("--publish")

    @property
    def detached(self) -> bool:
        """True for -d, also inside a cluster such as -dit."""
        clusters = (f.written for f in self.options if f.value is True and not f.written.startswith("--"))
        return self.option("--detach") not in (None, "false") or any("d" in written for written in clusters)

    @property
    def env_files(self) -> tuple[str, ...]:
        """Files whose variables are not seen from here."""
        return self.every("--env-file")

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """The pairs of `-e NAME=value`."""
        pairs = (value.partition("=") for value in self.every("--env") if "=" in value)
        return tuple((name, value) for name, _, value in pairs)

    @property
    def environment_from(self) -> tuple[str, ...]:
        """The names of `-e NAME`."""
        return tuple(value for value in self.every("--env") if "=" not in value)

    def with_environment(self, name: str, value: str | None) -> Container:
        """A variable set in its place, appended, or removed by None (a pass-through by name included)."""
        held = [i for i, f in enumerate(self.options) if f.name == "--env" and str(f.value).partition("=")[0] == name]
        kept = [f for i, f in enumerate(self.options) if i not in held]
        if value is None:
            return replace(self, options=tuple(kept))
        place = held[-1] - len(held) + 1 if held else len(kept)
        written = self.options[held[-1]].written if held else "-e"
        text = f"{name}={value}"
        option = Flag("--env", written, text, tokens=(written, text))
        return replace(self, options=(*kept[:place], option, *kept[place:]))

    def passing_through(self, name: str) -> Container:
        """The same with `-e NAME=…` written as `-e NAME`: the client takes the value from its own environment."""
        options = [
            Flag("--env", f.written, name, tokens=(f.written, name))
            if f.name == "--env" and str(f.value).partition("=")[0] == name
            else f
            for f in self.options
        ]
        return replace(self, options=tuple(options))

    def argv(self) -> tuple[str, ...]:
        """From the client up to and including the image."""
        return (*self.client, *(token for option in self.options for token in option.argv()), self.image)


def read_container(words: Sequence[str]) -> tuple[Container, tuple[str, ...]]:
    """Understand the words of a `docker run` line, client first; give the container and the words after the image.

    The container's `entry` is that of `--entrypoint` or of a known image. Raises UnresolvedWrapper when the line
    starts no container from an image, or one whose entrypoint is not known.
    """
    begin = after_run(words)
    if begin is None:
        raise UnresolvedWrapper(f"`{' '.join(words[:3])}` does not run an image.", "Give the whole docker run line.")
    at = begin
    options: list[Flag] = []
    while at < len(words) and words[at].startswith("-") and len(words[at]) > 1:
        read, used = _read_option(words, at)
        options += read
        at += used
    if at >= len(words):
        raise UnresolvedWrapper(f"No image is named in: {' '.join(words[:6])} …", "Give the whole docker run line.")
    container = Container(tuple(words[:begin]), tuple(options), words[at])
    after = tuple(words[at + 1 :])
    return replace(container, entry=_entry(container, after)), after


def after_run(words: Sequence[str]) -> int | None:
    """The index behind `run` in a line that begins with a container client; None when it does something else."""
    at = 1
    while at < len(words) and (words[at].startswith("-") or words[at] == "container"):
        at += 2 if words[at] in _CLIENT_VALUES else 1
    return at + 1 if at < len(words) and words[at] == "run" else None


def _read_option(words: Sequence[str], at: int) -> tuple[list[Flag], int]:
    """The option at `at` (a cluster such as -it counts as one, named after its last letter), and how many words it
    takes.
    """
    word = words[at]
    name, equals, value = word.partition("=")
    if word.startswith("--"):
        target = _SHORT.get(name, name)
        if equals:
            return [Flag(target, name, value, tokens=(word,))], 1
        if target in _WITHOUT_VALUE or at + 1 >= len(words):
            return [Flag(target, name, True, tokens=(word,))], 1
        return [Flag(target, name, words[at + 1], tokens=tuple(words[at : at + 2]))], 2
    for place in range(1, len(word)):
        target = _SHORT.get("-" + word[place], "-" + word[place])
        if target in _WITHOUT_VALUE:
            continue
        attached = word[place + 1 :].removeprefix("=")
        if attached:
            return [Flag(target, word[: place + 1], attached, tokens=(word,))], 1
        return [Flag(target, word, words[at + 1] if at + 1 < len(words) else True, tokens=tuple(words[at : at + 2]))], 2
    return [Flag(_SHORT.get(word, word), word, True, tokens=(word,))], 1


def _entry(container: Container, after: Sequence[str]) -> tuple[str, ...]:
    """What runs in front of the words after the image."""
    if container.entrypoint is not None:
        return (container.entrypoint,) if container.entrypoint else ()
    official = _OFFICIAL.search(container.image)
    if official:
        return _official_entry(official[1], official[2] or "")
    if after and not after[0].startswith("-"):
        return ()
    raise unknown_entrypoint(container.image)


def unknown_entrypoint(image: str) -> UnresolvedWrapper:
    """The error for an image whose entrypoint would have to be known."""
    return UnresolvedWrapper(
        f"What {image} runs is written in the image and is not seen from here.",
        'Give --container NAME or --pid of the running server, its log with "non-default args", or --entrypoint.',
    )


def _official_entry(repository: str, tag: str) -> tuple[str, ...]:
    """vllm/vllm-openai starts `vllm serve` in newer releases and the API server's module in older ones (and on XPU)."""
    version = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", tag)
    old = version is not None and tuple(int(part or 0) for part in version.groups()) < (0, 11, 1)
    if old or repository.endswith("-xpu"):
        return ("python3", "-m", "vllm.entrypoints.openai.api_server")
    return ("vllm", "serve")
