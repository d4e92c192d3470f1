"""Driver, container runtime and CUDA runtime: the links below the image.

`nvidia-smi` and NVML print a "CUDA version" that is the newest one the *driver can* run. What a server has loaded is
decided inside its container, so the two are never taken for one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from repro.domain.command.layout import gpu_count
from repro.domain.compatibility.chain import Link, Place, RuleResult
from repro.domain.compatibility.conditions import Conditions
from repro.domain.compatibility.node import Node
from repro.domain.compatibility.rule import BROKEN, HOLDS, UNKNOWN, Finding, compared, held, on_every_node, unknown
from repro.domain.fingerprint import Label
from repro.domain.release import local_part, release

# What Docker gives a container that asks for nothing; worker processes share their tensors through it.
DEFAULT_SHM = 64 * 1024 * 1024
_BUILDS = {"cuda": "cu", "rocm": "rocm", "cpu": "cpu"}
_SNAPSHOT = "take a snapshot on the node itself: repro snapshot"


def driver_rules(nodes: Sequence[Node], conditions: Conditions, expected_nodes: int) -> Iterator[RuleResult]:
    """The host's driver, its equality over the nodes, and the driver library that the server maps."""
    if conditions.driver_min is not None:
        yield _driver_version(nodes, conditions.driver_min)
    if expected_nodes > 1:
        yield _driver_equal(nodes, expected_nodes)
    if conditions.platform in (None, "cuda") and any(node.driver.known for node in nodes):
        yield _driver_mapped(nodes)


def _driver_version(nodes: Sequence[Node], minimum: str) -> RuleResult:
    def look(node: Node) -> Finding:
        fact = node.driver
        if not fact.known:
            return unknown("the driver's version", fact)
        return compared(fact, minimum, f"driver {fact.value}")

    return on_every_node(
        nodes,
        look,
        id="driver.version",
        link=Link.DRIVER,
        wanted=f"driver R{minimum} or newer on every node",
        mend=f"install driver R{minimum} or newer on these hosts and reboot them; an image for an older CUDA, or a "
        "forward-compatibility package, is no substitute for this recipe",
        learn=f"the NVIDIA driver did not answer NVML here; see `nvidia-smi`, then {_SNAPSHOT}",
    )


def _driver_equal(nodes: Sequence[Node], expected: int) -> RuleResult:
    versions = {node.name: node.driver for node in nodes}
    known = {name: str(fact.value) for name, fact in versions.items() if fact.known}
    complete = len(known) == len(nodes) and len(nodes) >= expected
    seen = ", ".join(f"{name}: {version}" for name, version in known.items()) or "no driver's version is known"
    if len(set(known.values())) > 1:
        outcome, mend = (
            BROKEN,
            "bring all nodes to one driver version; ranks on unequal drivers fail far from the cause",
        )
    elif complete:
        outcome, mend = HOLDS, ""
    else:
        outcome, mend = UNKNOWN, "take a snapshot on each node and give them all: repro check NODE1 NODE2 …"
        seen += f" ({len(known)} of {expected} nodes)"
    evidence = Label.UNAVAILABLE if outcome is UNKNOWN else Label.MEASURED
    return RuleResult("driver.equal", Link.DRIVER, outcome, evidence, seen, "the same driver on every node", mend)


def _driver_mapped(nodes: Sequence[Node]) -> RuleResult:
    def look(node: Node) -> Finding:
        mapped, host = node.mapped_library("cuda"), node.driver
        places = {
            Place.INSIDE: mapped.version if mapped else None,
            Place.HOST: str(host.value) if host.known else None,
        }
        if mapped is None or not host.known:
            return Finding(UNKNOWN, "which libcuda the server maps is not known", Label.UNAVAILABLE, places)
        if mapped.compat:
            return Finding(HOLDS, f"libcuda {mapped.version} from a compat directory ({mapped.path})", places=places)
        gone = " (a file that was replaced since)" if mapped.deleted else ""
        seen = f"the server maps libcuda {mapped.version}{gone}, the host's driver is {host.value}"
        return Finding(HOLDS if mapped.version == str(host.value) else BROKEN, seen, places=places)

    return on_every_node(
        nodes,
        look,
        id="driver.mapped",
        link=Link.DRIVER,
        wanted="the driver library that the server maps is the host driver's",
        mend="the driver was changed under a running container: remove the container and start a new one; a restart "
        "of the same container keeps the old library",
        learn="a snapshot with --pid of the running server reads the libraries it maps",
        unknown_warns=True,
    )


def runtime_rules(nodes: Sequence[Node], conditions: Conditions) -> Iterator[RuleResult]:
    """What the container runtime gave the server: GPUs and shared memory."""
    if conditions.platform == "cpu":
        return
    if conditions.platform is not None:
        yield _runtime_gpus(nodes)
    if any(node.in_container and node.command is not None and gpu_count(node.command) > 1 for node in nodes):
        yield _runtime_shared_memory(nodes)


def _runtime_gpus(nodes: Sequence[Node]) -> RuleResult:
    def look(node: Node) -> Finding:
        if node.in_container is False:
            return held(True, "no container: the server runs on the host", node.command_fact)
        request, devices = node.fact("container.gpus"), node.fact("container.devices")
        runtime = node.fact("container.runtime").value
        used = runtime.get("used") if isinstance(runtime, Mapping) else None
        given = [name for name, fact in (("a GPU request", request), ("devices", devices)) if fact.value]
        given += [f"runtime {used}"] if used and "nvidia" in str(used) else []
        if given:
            return Finding(HOLDS, f"GPUs by {', '.join(given)}{_versions(node)}")
        if request.known and devices.known:
            return held(False, "the container was started without any GPU", request)
        asked = node.command.container.gpus if node.command and node.command.container else None
        if asked is not None:
            return Finding(HOLDS, f"--gpus {asked}", Label.DECLARED)
        return unknown("whether the container got GPUs", request)

    return on_every_node(
        nodes,
        look,
        id="runtime.gpus",
        link=Link.CONTAINER_RUNTIME,
        wanted="a container that is given GPUs, or no container",
        mend="start the container with --gpus all (the NVIDIA container toolkit must be set up for the daemon: "
        "nvidia-ctk runtime configure), or with --device for ROCm",
        learn="take the snapshot with --container NAME, by a user who may ask the Docker daemon",
    )


def _versions(node: Node) -> str:
    """The runtime's own versions, as far as they were collected."""
    told = [node.fact(name).value for name in ("container.docker", "container.toolkit")]
    shown = [f"{name} {version}" for part in told if isinstance(part, Mapping) for name, version in part.items()]
    return f" ({', '.join(shown)})" if shown else ""


def _runtime_shared_memory(nodes: Sequence[Node]) -> RuleResult:
    def look(node: Node) -> Finding:
        if not node.in_container:
            return Finding(HOLDS, "no container: the host's /dev/shm")
        fact = node.fact("container.limits")
        limits = fact.value if isinstance(fact.value, Mapping) else {}
        options = node.command.container if node.command else None
        if limits.get("ipc") == "host" or (options is not None and options.ipc == "host"):
            return Finding(HOLDS, "--ipc=host", Label.MEASURED if limits else Label.DECLARED)
        size = limits.get("shm_size")
        if not isinstance(size, int):
            return unknown("the container's shared memory", fact)
        return held(size > DEFAULT_SHM, f"{size // 2**20} MiB of shared memory", fact)

    return on_every_node(
        nodes,
        look,
        id="runtime.shared_memory",
        link=Link.CONTAINER_RUNTIME,
        wanted="more shared memory than Docker's 64 MiB, since several processes share one model",
        mend="start the container with --ipc=host, or with --shm-size of some GiB",
        learn="take the snapshot with --container NAME",
        unknown_warns=True,
    )


def cuda_rules(nodes: Sequence[Node], conditions: Conditions) -> Iterator[RuleResult]:
    """What the server's PyTorch is built for, the CUDA it has loaded, and whether the driver can run that."""
    if conditions.platform is not None:
        yield _cuda_platform(nodes, conditions.platform)
    if conditions.cuda_min is not None:
        yield _cuda_runtime(nodes, conditions.cuda_min)
    if conditions.platform in (None, "cuda") and any(node.cuda.known for node in nodes):
        yield _cuda_ability(nodes)


def _cuda_platform(nodes: Sequence[Node], platform: str) -> RuleResult:
    def look(node: Node) -> Finding:
        versions = [node.torch, node.vllm[Place.INSIDE]]
        parts = [(fact, local_part(str(fact.value))) for fact in versions if fact.known]
        for fact, part in parts:
            for name, prefix in _BUILDS.items():
                if part.startswith(prefix):
                    return held(name == platform, f"built for {name} ({fact.value})", fact)
        if platform == "cuda" and node.cuda.known:
            return held(True, f"CUDA {node.cuda.value}", node.cuda)
        return unknown("what PyTorch was built for", node.torch)

    return on_every_node(
        nodes,
        look,
        id="cuda.platform",
        link=Link.CUDA_RUNTIME,
        wanted=f"a build for {platform}",
        mend=f"use the image or the wheel that is built for {platform}",
        learn=f"{_SNAPSHOT} --inside (or --pid of the server), which asks the server's own Python",
        unknown_warns=True,
    )


def _cuda_runtime(nodes: Sequence[Node], minimum: str) -> RuleResult:
    def look(node: Node) -> Finding:
        fact, ability = node.cuda, node.driver_cuda
        places = {
            Place.INSIDE: str(fact.value) if fact.known else None,
            Place.HOST: f"the driver can run CUDA up to {ability.value}" if ability.known else None,
        }
        if not fact.known:
            only = f"; that the driver can run CUDA {ability.value} does not tell" if ability.known else ""
            finding = unknown("the CUDA that the server loaded", fact)
            return Finding(UNKNOWN, finding.seen + only, finding.evidence, places)
        seen = f"CUDA {fact.value} inside ({fact.reason or 'asked inside'})"
        return replace(compared(fact, minimum, seen), places=places)

    return on_every_node(
        nodes,
        look,
        id="cuda.runtime",
        link=Link.CUDA_RUNTIME,
        wanted=f"CUDA {minimum} or newer inside; the version that nvidia-smi prints is the driver's ability",
        mend=f"use an image built for CUDA {minimum} (cu{''.join(minimum.split('.')[:2])}); no tag with -cu129",
        learn=f"{_SNAPSHOT} --inside, or with --pid of the running server, whose mapped libraries tell",
    )


def _cuda_ability(nodes: Sequence[Node]) -> RuleResult:
    def look(node: Node) -> Finding:
        runtime, ability, libcuda = node.cuda, node.driver_cuda, node.mapped_library("cuda")
        if not runtime.known or not ability.known:
            return unknown("what the driver can run, or what the server loaded", ability if runtime.known else runtime)
        seen = f"the driver can run CUDA {ability.value}, the server has {runtime.value}"
        # Within one major version any driver of that version runs any runtime (CUDA's minor version compatibility).
        able = release(str(ability.value))[:1] >= release(str(runtime.value))[:1]
        if not able and libcuda is not None and libcuda.compat:
            return held(True, f"{seen}, by the compat library {libcuda.path}", runtime)
        return held(able, seen, runtime)

    return on_every_node(
        nodes,
        look,
        id="cuda.driver_ability",
        link=Link.CUDA_RUNTIME,
        wanted="a driver that can run the CUDA that the server has loaded",
        mend="upgrade the host's driver, or use an image for the CUDA that this driver can run",
        learn=_SNAPSHOT,
        unknown_warns=True,
    )


def expected_nodes(nodes: Sequence[Node], conditions: Conditions) -> int:
    """How many nodes' facts belong to this server: the recipe's layout, or the command's --nnodes where it is more."""
    asked = [node.command.flag("--nnodes") for node in nodes if node.command is not None]
    counts = [int(value) for value in asked if isinstance(value, str) and value.isdigit()]
    return max([conditions.nodes, len(nodes), *counts])
