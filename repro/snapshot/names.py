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
    "libraries.installed",
    "model_files.revision",
    "model_files.config_sha256",
    "model_files.digest",
    "command.recipe_hash",
    "command.image_id",
)
"""What a search compares before each trial; cheap to read."""

CONFIGURED: tuple[str, ...] = (
    "host.shm_total",
    "host.numa",
    "container.docker",
    "container.runtime",
    "container.toolkit",
    "container.image",
    "container.image_id",
    "container.tag_now",
    "container.argv",
    "container.environment",
    "container.limits",
    "container.mounts",
    "container.gpus",
    "container.network",
    "process.argv",
    "process.environment",
    "process.libraries",
    "command.argv",
    "inside.vllm",
    "inside.torch",
    "inside.cuda",
    "inside.nccl",
    "inside.packages_sha256",
    "inside.build",
    "configuration.arguments",
    "configuration.engine",
    "model_files.small_files",
    "source.trees",
)
"""What a snapshot compares besides: who changed which setting is what it is taken for."""

OBSERVED: tuple[str, ...] = (
    "host.memory_available",
    "host.swap_used",
    "host.shm_free",
    "host.load",
    "gpu.memory_used",
    "gpu.utilization",
    "gpu.processes",
)

SEEN: tuple[str, ...] = ("container.state", "gpu.state", "kernel.xids", "kernel.oom_kills")
"""What a snapshot observes besides."""


def fingerprint_of(
    facts: Mapping[str, Mapping[str, Fact]],
    pinned: Iterable[str] = PINNED,
    observed: Iterable[str] = OBSERVED,
) -> Fingerprint:
    """The fingerprint that is in these facts; a name whose collector did not run is left out."""
    return Fingerprint(_chosen(facts, pinned), _chosen(facts, observed))


def _chosen(facts: Mapping[str, Mapping[str, Fact]], names: Iterable[str]) -> dict[str, Fact]:
    chosen: dict[str, Fact] = {}
    for name in names:
        group, short = name.split(".")
        if short in facts.get(group, {}):
            chosen[name] = facts[group][short]
    return chosen
