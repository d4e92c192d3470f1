"""GPUs and model files: does the model fit, and are its files whole and the same everywhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from repro.domain.compatibility.chain import Link, Place, RuleResult
from repro.domain.compatibility.conditions import Conditions, GpuKind
from repro.domain.compatibility.node import GpuDevice, Node
from repro.domain.compatibility.rule import BROKEN, HOLDS, UNKNOWN, Finding, held, on_every_node, unknown
from repro.domain.fingerprint import Label

_GB = 10**9
_NVML = "take the snapshot on the node itself, where the driver answers (nvidia-smi must work)"


def gpu_rules(nodes: Sequence[Node], conditions: Conditions, expected: int) -> Iterator[RuleResult]:
    """Model, count over all nodes, memory over all nodes, and GPUs cut into parts."""
    if conditions.gpus:
        yield _model(nodes, conditions.gpus)
        yield _count(nodes, conditions.gpus, expected)
    if conditions.memory_min is not None:
        yield _memory(nodes, conditions.memory_min, expected)
    if conditions.gpus:
        yield _mig(nodes)


def is_kind(name: str | None, kind: str) -> bool:
    """Whether a device's name ("NVIDIA B300 SXM6 AC") is of that kind ("B300"): as a word, since GB300 is no B300."""
    return name is not None and kind.upper() in re.split(r"[^A-Z0-9]+", name.upper())


def _shown(devices: Sequence[GpuDevice]) -> str:
    counts = Counter(device.name or "a GPU without a name" for device in devices)
    return ", ".join(f"{count} x {name}" for name, count in counts.items()) or "no GPU"


def _wanted(gpus: Sequence[GpuKind]) -> str:
    return " or ".join(f"{gpu.count} x {gpu.name}" for gpu in gpus)


def _model(nodes: Sequence[Node], gpus: Sequence[GpuKind]) -> RuleResult:
    def look(node: Node) -> Finding:
        devices = node.devices
        if devices is None:
            return unknown("which GPUs are here", node.fact("gpu.devices"))
        fits = bool(devices) and any(all(is_kind(device.name, gpu.name) for device in devices) for gpu in gpus)
        return held(fits, _shown(devices), node.fact("gpu.devices"))

    return on_every_node(
        nodes,
        look,
        id="gpu.model",
        link=Link.GPU,
        wanted=_wanted(gpus),
        mend="run on these GPUs, or check against the recipe of the ones that are here: repro check --recipe NAME",
        learn=_NVML,
    )


def _all_devices(nodes: Sequence[Node]) -> list[GpuDevice] | None:
    found = [node.devices for node in nodes]
    return [device for devices in found for device in devices or ()] if None not in found else None


def _total(
    nodes: Sequence[Node],
    expected: int,
    *,
    id: str,
    enough: bool | None,
    seen: str,
    wanted: str,
    mend: str,
    places: dict[Place, str | None] | None = None,
) -> RuleResult:
    """A sum over all nodes: too little is only broken when all nodes were seen."""
    complete = len(nodes) >= expected
    if enough:
        outcome, mend = HOLDS, ""
    elif enough is None or not complete:
        outcome = UNKNOWN
        mend = _NVML if complete else "take a snapshot on each node and give them all: repro check NODE1 NODE2 …"
    else:
        outcome = BROKEN
    if expected > 1:
        seen += f", on {len(nodes)} of {expected} nodes"
    evidence = Label.UNAVAILABLE if outcome is UNKNOWN else nodes[0].fact("gpu.devices").label
    return RuleResult(id, Link.GPU, outcome, evidence, seen, wanted, mend, places or {})


def _count(nodes: Sequence[Node], gpus: Sequence[GpuKind], expected: int) -> RuleResult:
    devices = _all_devices(nodes)
    enough = None
    inside = [node.gpus_inside for node in nodes]
    places = {Place.HOST: None if devices is None else str(len(devices)), Place.INSIDE: None}
    if None not in inside:
        places[Place.INSIDE] = str(sum(count or 0 for count in inside))
    if devices is not None:
        # GPUs of another model are the business of gpu.model; here the fewest that any kind asks for count.
        kinds = [g for g in gpus if any(is_kind(d.name, g.name) for d in devices)]
        counts = [len(n.devices or ()) if n.gpus_inside is None else n.gpus_inside for n in nodes]
        enough = sum(counts) >= min(g.count for g in kinds or gpus)
    return _total(
        nodes,
        expected,
        id="gpu.count",
        enough=enough,
        seen=_counted(devices, places),
        wanted=_wanted(gpus),
        places=places,
        mend="give the server all of these GPUs (CUDA_VISIBLE_DEVICES, --gpus), or more nodes",
    )


def _counted(devices: Sequence[GpuDevice] | None, places: dict[Place, str | None]) -> str:
    if devices is None:
        return "the GPUs are not known"
    seen = _shown(devices)
    return (
        seen
        if places[Place.INSIDE] in (None, places[Place.HOST])
        else (f"{seen}, but the server itself sees {places[Place.INSIDE]}")
    )


def _memory(nodes: Sequence[Node], minimum: int, expected: int) -> RuleResult:
    devices = _all_devices(nodes)
    sizes = [device.memory for device in devices or ()]
    known = devices is not None and None not in sizes
    total = sum(size for size in sizes if size is not None)
    return _total(
        nodes,
        expected,
        id="gpu.memory",
        enough=total >= minimum if known else None,
        seen=f"{total / _GB:,.0f} GB on all GPUs together" if known else "the GPUs' memory is not known",
        wanted=f"{minimum / _GB:,.0f} GB or more on all GPUs together",
        mend="the weights do not fit: add GPUs or nodes, or take a recipe for more of them",
    )


def _mig(nodes: Sequence[Node]) -> RuleResult:
    def look(node: Node) -> Finding:
        devices = node.devices
        if devices is None or any(device.mig is None for device in devices):
            return unknown("whether MIG is on", node.fact("gpu.devices"))
        cut = sum(bool(device.mig) for device in devices)
        return held(not cut, f"MIG is on for {cut} GPUs" if cut else "MIG is off", node.fact("gpu.devices"))

    return on_every_node(
        nodes,
        look,
        id="gpu.mig",
        link=Link.GPU,
        wanted="whole GPUs",
        mend="switch MIG off for these GPUs (nvidia-smi -mig 0) and reset them when nobody uses them",
        learn=_NVML,
        unknown_warns=True,
    )


def model_rules(nodes: Sequence[Node], conditions: Conditions, expected: int) -> Iterator[RuleResult]:
    """The files are all there, they can be told apart from another revision, and all nodes have the same."""
    if conditions.weight_files is not None or conditions.weight_bytes is not None:
        yield _files(nodes, conditions)
    if conditions.model is not None:
        yield _identity(nodes)
    if expected > 1:
        yield _same_files(nodes, expected)


def _files(nodes: Sequence[Node], conditions: Conditions) -> RuleResult:
    count, size = conditions.weight_files, conditions.weight_bytes

    def look(node: Node) -> Finding:
        files, total = node.fact("model_files.weight_files"), node.fact("model_files.bytes")
        index = node.fact("model_files.index")
        if not files.known or (size is not None and not total.known):
            return unknown("the model's files", node.fact("model_files.weight_files", "model_files.path"))
        seen = f"{files.value} weight files, {(total.value or 0) / _GB:,.0f} GB"
        if index.value is False:
            return held(False, f"{seen}; the index names files that are not there", index)
        whole = (count is None or files.value == count) and (size is None or total.value >= size)
        return held(whole, seen, files)

    asked = [f"{count} weight files" if count is not None else ""]
    asked += [f"{size / _GB:,.0f} GB or more" if size is not None else ""]
    return on_every_node(
        nodes,
        look,
        id="model.files",
        link=Link.MODEL_FILES,
        wanted=", ".join(filter(None, asked)),
        mend="the download is not whole, or it is another checkpoint: fetch it again (hf download MODEL --revision …)",
        learn="take the snapshot where the files lie; for a container give the host's folder of the model",
    )


def _identity(nodes: Sequence[Node]) -> RuleResult:
    def look(node: Node) -> Finding:
        revision, config = node.fact("model_files.revision"), node.fact("model_files.config_sha256")
        if revision.known:
            return held(True, f"revision {revision.value}", revision)
        if config.known:
            return held(True, f"no revision; config.json has SHA-256 {str(config.value)[:12]}…", config)
        written = node.command.flag("--revision") if node.command else None
        if isinstance(written, str):
            return Finding(HOLDS, f"--revision {written}", node.command_fact.label)
        return unknown("the model's revision", revision)

    return on_every_node(
        nodes,
        look,
        id="model.revision",
        link=Link.MODEL_FILES,
        wanted="a model whose revision is on record",
        mend="write --revision COMMIT into the command",
        learn="write --revision COMMIT into the command, or take the snapshot where the files lie",
    )


def _same_files(nodes: Sequence[Node], expected: int) -> RuleResult:
    names = ("model_files.revision", "model_files.config_sha256", "model_files.weight_files", "model_files.bytes")
    said = {node.name: [node.fact(name) for name in names] for node in nodes}
    mend = ""
    differing = [
        name.partition(".")[2]
        for i, name in enumerate(names)
        if len({str(facts[i].value) for facts in said.values() if facts[i].known}) > 1
    ]
    complete = len(nodes) >= expected and all(facts[1].known and facts[3].known for facts in said.values())
    if differing:
        outcome, mend = BROKEN, "copy the model to all nodes from one place, and compare again"
        seen = f"the nodes differ in {', '.join(differing)}"
    elif complete:
        outcome, seen = HOLDS, f"the same on {len(nodes)} nodes"
    else:
        outcome, seen = UNKNOWN, f"not known for all of {expected} nodes"
        mend = "take a snapshot on each node where the files lie, and give them all"
    evidence = Label.MEASURED if outcome is not UNKNOWN else Label.UNAVAILABLE
    return RuleResult(
        "model.same", Link.MODEL_FILES, outcome, evidence, seen, "the same model files on every node", mend
    )
