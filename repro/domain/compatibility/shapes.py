"""What shape the facts have that rules read; one of another shape counts as unavailable.

A fingerprint.json may come from another version of repro, or from an editor: that must cost a fact, not the check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from repro.domain.fingerprint import Fact


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _words(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _list(value: Any) -> bool:
    return isinstance(value, list)


def _object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _pairs(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())


_NAMES: Mapping[Callable[[Any], bool], str] = {
    _text: "gpu.driver_version gpu.cuda_version inside.vllm inside.torch inside.cuda libraries.vllm libraries.torch "
    "configuration.engine_version configuration.server_version container.id container.image container.image_id "
    "command.image_id model_files.revision model_files.config_sha256 host.hostname",
    _whole: "inside.gpus model_files.weight_files model_files.bytes process.pid",
    _words: "process.argv container.argv command.argv",
    _list: "container.repo_digests container.gpus container.devices",
    _object: "container.runtime container.docker container.toolkit container.limits container.labels container.tag_now "
    "host.cgroup_memory_limit inside.build triage.diagnosis configuration.arguments",
    _objects: "gpu.devices process.libraries host.numa",
    _pairs: "process.environment container.environment command.environment",
}
_SHAPE = {name: shape for shape, names in _NAMES.items() for name in names.split()}


def readable(name: str, fact: Fact) -> Fact:
    """The fact itself, or that it cannot be read: no value, or one of a shape that this name never has."""
    if not fact.known:
        return fact
    if fact.value is None:
        return Fact.unavailable("it was recorded without a value")
    shape = _SHAPE.get(name)
    return fact if shape is None or shape(fact.value) else Fact.unavailable("recorded in a shape that is not read here")
