"""Flags that only make sense together and therefore move as one variable, as data with the reason.

Taken apart, the first of them would fail with an argument error that says nothing about the fault that is searched.
Source: the checks of vLLM 0.32.0 (vllm/entrypoints/openai/cli_args.py, vllm/engine/arg_utils.py, vllm/config/*.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Coupling:
    """`flags` move together; the first one that differs between the ends names the variable."""

    flags: tuple[str, ...]
    reason: str


COUPLINGS: tuple[Coupling, ...] = (
    Coupling(
        ("--tool-call-parser", "--enable-auto-tool-choice", "--tool-parser-plugin"),
        "vLLM refuses automatic tool choice without a parser, and a plugin is where the parser comes from",
    ),
    Coupling(
        ("--reasoning-parser", "--reasoning-parser-plugin"),
        "the plugin is where the parser comes from",
    ),
    Coupling(
        (
            "--enable-lora",
            "--lora-modules",
            "--max-loras",
            "--max-lora-rank",
            "--max-cpu-loras",
            "--lora-dtype",
            "--fully-sharded-loras",
            "--lora-target-modules",
            "--default-mm-loras",
        ),
        "without --enable-lora adapters are refused and their limits mean nothing",
    ),
    Coupling(
        ("--spec-model", "--spec-method", "--spec-tokens"),
        "together they are one draft configuration; --speculative-config says the same in one flag",
    ),
    Coupling(("--enable-eplb", "--eplb-config"), "the configuration is only read with expert load balancing on"),
    Coupling(
        ("--enable-dbo", "--dbo-decode-token-threshold", "--dbo-prefill-token-threshold"),
        "the thresholds are only read with dual batch overlap on",
    ),
    Coupling(("--numa-bind", "--numa-bind-nodes", "--numa-bind-cpus"), "the lists are only read with binding on"),
    Coupling(
        ("--offload-backend", "--offload-group-size", "--offload-num-in-group", "--offload-prefetch-step"),
        "sizes of an offload that only exists with its backend",
    ),
    Coupling(("--kv-offloading-size", "--kv-offloading-backend"), "the backend is only used when a size is given"),
    Coupling(
        (
            *("--ssl-certfile", "--ssl-keyfile", "--ssl-keyfile-password", "--ssl-ca-certs", "--ssl-cert-reqs"),
            *("--ssl-ciphers", "--enable-ssl-refresh"),
        ),
        "a certificate is only read with its key, and the rest only with both",
    ),
    Coupling(
        ("--fingerprint-mode", "--fingerprint-value"),
        "a fixed fingerprint needs its value",
    ),
)

# What makes a rank one of several nodes. Only these go when `nodes` is taken away; the parallel sizes stay.
NODE_FLAGS: tuple[str, ...] = ("--nnodes", "--node-rank", "--master-addr", "--master-port", "--headless")


# Objects given in dotted parts (--speculative-config.model) that mean something only as a whole. The keys of others
# (--compilation-config, --attention-config) are settings of their own and are tried one by one.
WHOLE_OBJECTS: tuple[str, ...] = (
    "--speculative-config",
    "--kv-transfer-config",
    "--kv-events-config",
    "--ec-transfer-config",
    "--weight-transfer-config",
    "--diffusion-config",
    "--rope-scaling",
)


def together_with(flag: str, differing: Sequence[str]) -> tuple[str, ...]:
    """Those of the differing flags that move with this one, itself included."""
    coupling = coupling_of(flag)
    if coupling:
        return tuple(other for other in coupling.flags if other in differing)
    whole = flag.partition(".")[0]
    if whole in WHOLE_OBJECTS:
        return tuple(other for other in differing if other.partition(".")[0] == whole)
    return (flag,)


def coupling_of(flag: str) -> Coupling | None:
    """The coupling that a flag belongs to; None where it moves alone."""
    return next((coupling for coupling in COUPLINGS if flag in coupling.flags), None)


def reason_for(flag: str) -> str:
    """Why this flag does not move alone; "" where nobody said so but the user."""
    coupling = coupling_of(flag)
    if coupling:
        return coupling.reason
    return "parts of one object" if flag.partition(".")[0] in WHOLE_OBJECTS else ""
