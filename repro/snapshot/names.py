"""Which facts make the fingerprint: pinned ones must stay for trials to be comparable, observed ones may move."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from repro.domain.fingerprint import Fact, Fingerprint

PINNED: tuple[str, ...] = (
    "host.kernel",
    "host.os",
    "gpu.driver_version",
    "gpu.devices",
    "libraries.interpreter",
    "libraries.vllm",
    "libraries.torch",
    "libraries.digest",
    "model_files.revision",
    "model_files.config_sha256",
    "model_files.digest",
    "command.recipe_hash",
    "command.image_id",
)
OBSERVED: tuple[str, ...] = (
    "host.memory_available",
    "host.swap_used",
    "host.shm_free",
    "host.load",
    "gpu.memory_used",
    "gpu.utilization",
    "gpu.processes",
)


def fingerprint_of(facts: Mapping[str, Mapping[str, Fact]]) -> Fingerprint:
    """The fingerprint that is in these facts; a name whose collector did not run is left out."""
    return Fingerprint(_chosen(facts, PINNED), _chosen(facts, OBSERVED))


def _chosen(facts: Mapping[str, Mapping[str, Fact]], names: Iterable[str]) -> dict[str, Fact]:
    chosen: dict[str, Fact] = {}
    for name in names:
        group, short = name.split(".")
        if short in facts.get(group, {}):
            chosen[name] = facts[group][short]
    return chosen
