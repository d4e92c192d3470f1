"""The facts of one node, read under whatever names a snapshot may have them, and what was found at the three places.

The names of facts are those of the collectors; this is the one file that a renamed fact touches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from repro.domain.command import Command, FlagValue, parse
from repro.domain.compatibility.chain import Place
from repro.domain.compatibility.shapes import readable
from repro.domain.fingerprint import Fact
from repro.errors import ReproError

_LIBRARY = re.compile(r"/lib(?P<name>[a-zA-Z_-]+)\.so\.(?P<version>\d+(?:\.\d+)*)$")
_ABSENT = Fact.unavailable("not collected")
_REASONS_SHOWN = 2


@dataclass(frozen=True)
class MappedLibrary:
    """A shared library that the server's process has really mapped.

    `version` is the one in its file's name, `compat` says that it is one of a forward-compatibility package, `deleted`
    that its file was replaced since.
    """

    name: str
    version: str
    path: str
    compat: bool
    deleted: bool


@dataclass(frozen=True)
class GpuDevice:
    """One GPU; `memory` in bytes."""

    name: str | None
    memory: int | None
    mig: bool | None


@dataclass(frozen=True)
class Node:
    """One node's facts by dotted name, such as `gpu.driver_version`. `name` is how messages call the node."""

    name: str
    facts: Mapping[str, Fact]

    def fact(self, *names: str) -> Fact:
        """The first of these facts that is known, else the reasons why none is."""
        found = [readable(name, self.facts[name]) for name in names if name in self.facts]
        known = next((fact for fact in found if fact.known), None)
        if known is not None:
            return known
        reasons = list(dict.fromkeys(fact.reason for fact in found if fact.reason))[:_REASONS_SHOWN]
        return Fact.unavailable("; ".join(reasons)) if reasons else _ABSENT

    @property
    def driver(self) -> Fact:
        return self.fact("gpu.driver_version")

    @property
    def driver_cuda(self) -> Fact:
        """The newest CUDA that the driver can run. It says nothing about what a server has loaded."""
        return self.fact("gpu.cuda_version")

    @property
    def in_container(self) -> bool | None:
        """Whether the server runs in a container; None where nothing tells."""
        if self.fact("container.id", "container.image", "container.image_id").known:
            return True
        if self.command is not None:
            return self.command.container is not None
        return None

    @property
    def image(self) -> Fact:
        """The image's name as it was asked for, with tag or digest."""
        found = self.fact("container.image")
        if found.known:
            return found
        if self.command is not None and self.command.container is not None:
            return Fact.declared(self.command.container.image, "from the command")
        return found

    @property
    def image_id(self) -> Fact:
        return self.fact("container.image_id", "command.image_id")

    @cached_property
    def environment(self) -> Fact:
        """Names and values of the server's environment, the written ones last; secrets are masked."""
        found = self.fact("process.environment", "container.environment")
        command = self.command
        if not found.known and command is not None and command.container is not None:
            return Fact.declared(dict(command.environment), "from the command; the image's own variables are not known")
        found = found if found.known else self.fact("command.environment")
        if not found.known:
            return found
        return Fact({**found.value, **dict(command.environment if command else ())}, found.label, found.reason)

    @cached_property
    def command_fact(self) -> Fact:
        """The command as a `Command`, from the process, the container, the user or the log, in this order."""
        reasons = []
        for name in ("process.argv", "container.argv", "command.argv"):
            fact = self.fact(name)
            if fact.known:
                try:
                    return Fact(parse(fact.value), fact.label, name)
                except ReproError as error:
                    reasons.append(error.message)
        logged = self.fact("configuration.arguments")
        if logged.known:
            return Fact(_from_log(logged.value), logged.label, "the log's non-default args")
        reasons.append(self.fact("command.argv").reason)
        return Fact.unavailable("; ".join(filter(None, reasons[:_REASONS_SHOWN])))

    @property
    def command(self) -> Command | None:
        found = self.command_fact.value
        return found if isinstance(found, Command) else None

    @cached_property
    def mapped(self) -> tuple[MappedLibrary, ...]:
        """Libraries that the process maps; () where they could not be read."""
        fact = self.fact("process.libraries")
        found = []
        for item in fact.value if fact.known else ():
            path = str(item.get("path", ""))
            if match := _LIBRARY.search(path):
                compat, deleted = item.get("compat") is True, item.get("deleted") is True
                found.append(MappedLibrary(match["name"], match["version"], path, compat, deleted))
        return tuple(found)

    def mapped_library(self, name: str) -> MappedLibrary | None:
        """The mapped library of this name ("cuda", "cudart", "nccl")."""
        return next((library for library in self.mapped if library.name == name), None)

    @cached_property
    def devices(self) -> tuple[GpuDevice, ...] | None:
        """The GPUs, None where they are not known."""
        fact = self.fact("gpu.devices")
        return tuple(_device(item) for item in fact.value) if fact.known else None

    @property
    def gpus_inside(self) -> int | None:
        """How many GPUs the server's own PyTorch counts, None where it was not asked."""
        count = self.fact("inside.gpus").value
        return int(count) if count is not None else None

    @property
    def vllm(self) -> dict[Place, Fact]:
        """vLLM's version at each place. Beside a container the host's own Python says nothing about the server."""
        around = () if self.in_container else ("libraries.vllm",)
        inside = ("inside.vllm", "configuration.server_version", *around)
        logged = self.fact("triage.diagnosis")
        version = logged.value.get("vllm_version") if logged.known else None
        in_log = Fact(version, logged.label) if version else Fact.unavailable(logged.reason or "the log does not say")
        log = self.fact("configuration.engine_version")
        return {Place.INSIDE: self.fact(*inside), Place.LOG: log if log.known else in_log}

    @property
    def vllm_version(self) -> Fact:
        """vLLM's version, wherever it is known first: inside, then the log."""
        return next((fact for fact in self.vllm.values() if fact.known), self.vllm[Place.INSIDE])

    @property
    def torch(self) -> Fact:
        """PyTorch's version as the server's own Python has it."""
        return self.fact("inside.torch") if self.in_container else self.fact("inside.torch", "libraries.torch")

    @property
    def cuda(self) -> Fact:
        """The CUDA runtime that the server has: asked inside, mapped by its process, or that torch was built for."""
        asked = self.fact("inside.cuda")
        if asked.known:
            return Fact(asked.value, asked.label, asked.reason or "PyTorch's own")
        runtime = self.mapped_library("cudart")
        if runtime is not None:
            return Fact.measured(runtime.version, f"mapped by the server: {runtime.path}")
        built = re.search(r"\+cu(\d\d)(\d)", str(self.torch.value)) if self.torch.known else None
        if built:
            return Fact(f"{built[1]}.{built[2]}", self.torch.label, f"PyTorch {self.torch.value}")
        return asked


def _from_log(arguments: Mapping[str, Any]) -> Command:
    """The command that a log's arguments amount to: {flag: value} and `model`."""
    model = arguments.get("model")
    command = Command(("vllm", "serve"), model if isinstance(model, str) else None)
    for name, value in arguments.items():
        if name != "model" and value is not None:
            command = command.with_flag(name, _flag_value(value))
    return command


def _flag_value(value: Any) -> FlagValue:
    if isinstance(value, (bool, str)):
        return value
    return tuple(map(str, value)) if isinstance(value, list) else json.dumps(value)


def _device(item: Any) -> GpuDevice:
    memory, mig = item.get("memory_total"), item.get("mig")
    name = item.get("name")
    return GpuDevice(
        name if isinstance(name, str) else None,
        memory if isinstance(memory, int) else None,
        mig if isinstance(mig, bool) else None,
    )
