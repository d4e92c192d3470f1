"""Facts of servers that fit their recipes, as a snapshot would have them: what a test then takes away or breaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repro.domain.compatibility import Node
from repro.domain.fingerprint import Fact
from repro.recipe.find import find_recipe

DIGEST = "sha256:" + "c2914767605584b6" * 4
IMAGE_ID = "sha256:" + "ab" * 32
DRIVER = "580.82.07"
RUNTIME = "/usr/local/cuda-13.0/lib64/libcudart.so.13.0.96"
GB = 10**9

# Recipe: (nodes, GPUs a node, GPU's name, GPU's memory in 10^9 bytes).
HARDWARE: dict[str, tuple[int, int, str, int]] = {
    "kimi-k3-b300": (1, 8, "NVIDIA B300 SXM6 AC", 288),
    "kimi-k3-gb300": (2, 4, "NVIDIA GB300", 288),
    "kimi-k3-b200-2node": (2, 8, "NVIDIA B200", 192),
    "kimi-k3-h200-2node": (2, 8, "NVIDIA H200", 150),
    "kimi-k3-mi355x": (1, 8, "AMD Instinct MI355X", 288),
    "generic": (1, 1, "NVIDIA A100-SXM4-80GB", 85),
    "cpu-demo": (1, 0, "", 0),
}


def libraries(*paths: str) -> list[dict[str, Any]]:
    """Mapped libraries as the process's collector tells them."""
    return [
        {"name": "lib", "path": path, "compat": "/compat/" in path, "deleted": False, "pids": [1]} for path in paths
    ]


def fitting_argv(name: str) -> list[str]:
    """A production command that the recipe has nothing against, its expected settings included."""
    recipe = find_recipe(name)
    argv = list(recipe.minimal_argv or ("vllm", "serve", "Qwen/Qwen3-0.6B"))
    for flag, value in recipe.compatibility.expected_flags.items():
        argv += [flag] if value is True else [f"--no-{flag[2:]}"] if value is False else [flag, str(value)]
    if recipe.model is not None:
        argv += ["--enable-auto-tool-choice", "--tool-call-parser", "kimi_k3"]
        argv += [] if "--reasoning-parser" in argv else ["--reasoning-parser", "kimi_k3"]
    argv += [] if "--enable-prefix-caching" in argv else ["--enable-prefix-caching"]
    nodes = HARDWARE[name][0]
    return [*argv, "--nnodes", str(nodes)] if nodes > 1 else argv


def fitting_values(name: str, node: int = 0) -> dict[str, Any]:
    """The measured facts of one node by dotted name."""
    recipe = find_recipe(name)
    _, count, gpu, memory = HARDWARE[name]
    platform = recipe.compatibility.platform or "cuda"
    build = {"cuda": "2.11.0+cu130", "rocm": "2.11.0+rocm7.1", "cpu": "2.13.0+cpu"}[platform]
    values: dict[str, Any] = {
        "host.hostname": f"node{node}",
        "host.kernel": "Linux 6.11",
        "inside.vllm": "0.29.0+cpu" if platform == "cpu" else "0.29.0",
        "inside.torch": build,
        "triage.diagnosis": {"stage": "none", "vllm_version": "0.29.0"},
        "process.environment": {"VLLM_LOGGING_LEVEL": "INFO", **recipe.required.environment},
        "process.argv": fitting_argv(name),
        "model_files.path": "/models/it",
        "model_files.revision": "9f62e4e9",
        "model_files.config_sha256": "12" * 32,
        "model_files.weight_files": 96,
        "model_files.bytes": 1560 * GB,
    }
    if platform != "cpu":
        image = "vllm/vllm-openai-rocm" if platform == "rocm" else "vllm/vllm-openai"
        values |= {
            "gpu.devices": [
                {"index": i, "name": gpu, "uuid": f"GPU-{node}-{i}", "memory_total": memory * GB, "mig": False}
                for i in range(count)
            ],
            "container.id": "f00d",
            "container.image": f"{image}@{DIGEST}",
            "container.image_id": IMAGE_ID,
            "container.repo_digests": [f"{image}@{DIGEST}"],
            "container.labels": {"org.opencontainers.image.revision": "98dff2a8"},
            "container.gpus": [{"driver": None, "count": -1, "ids": [], "capabilities": [["gpu"]]}],
            "container.devices": ["/dev/kfd", "/dev/dri"] if platform == "rocm" else [],
            "container.limits": {"shm_size": 64 * 2**20, "ipc": "host"},
            "container.docker": {"engine": "28.1", "containerd": "1.7.27", "runc": "1.2.5"},
            "inside.gpus": count,
        }
    if platform == "cuda":
        values |= {
            "gpu.driver_version": DRIVER,
            "gpu.cuda_version": "13.0",
            "inside.cuda": "13.0",
            "process.libraries": libraries(f"/usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}", RUNTIME),
        }
    return values


def fitting_nodes(name: str, changed: Mapping[str, Any] | None = None, only_node: int | None = None) -> list[Node]:
    """One node for each that the recipe's layout has; `changed` replaces facts (None makes one unavailable) on all
    nodes, or on one.
    """
    nodes = []
    for number in range(HARDWARE[name][0]):
        values = fitting_values(name, number)
        if changed and only_node in (None, number):
            values |= changed
        facts = {n: Fact.unavailable("not readable") if v is None else Fact.measured(v) for n, v in values.items()}
        nodes.append(Node(f"node{number}", facts))
    return nodes
