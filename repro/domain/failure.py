"""What went wrong: family, signature (the error type a search compares) and failure (a signature with its evidence)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from repro.domain.stage import Stage


class Family(str, Enum):
    """The kind of fault, independent of the vLLM version's wording."""

    CUDA_INIT = "cuda_init"
    DRIVER_MISMATCH = "driver_mismatch"
    OOM_GPU = "oom_gpu"
    OOM_HOST = "oom_host"
    KV_CACHE_TOO_SMALL = "kv_cache_too_small"
    NCCL = "nccl"
    GLOO = "gloo"
    RENDEZVOUS_TIMEOUT = "rendezvous_timeout"
    WEIGHTS_MISSING = "weights_missing"
    WEIGHTS_CORRUPT = "weights_corrupt"
    PERMISSION = "permission"
    HUB_UNREACHABLE = "hub_unreachable"
    CONFIG_INVALID = "config_invalid"
    UNSUPPORTED_ARCH = "unsupported_arch"
    KERNEL_COMPILE = "kernel_compile"
    ILLEGAL_MEMORY_ACCESS = "illegal_memory_access"
    SHM = "shm"
    PORT_IN_USE = "port_in_use"
    ENGINE_DEAD = "engine_dead"
    TIMEOUT = "timeout"
    HANG = "hang"
    TOOL_PARSER = "tool_parser"
    PREFIX_CACHE = "prefix_cache"
    IMPORT_ERROR = "import_error"
    ARG_ERROR = "arg_error"
    IMAGE_MISSING = "image_missing"
    ENTRYPOINT = "entrypoint"
    OTHER = "other"
    CONTEXT_LENGTH = "context_length"
    BAD_OUTPUT = "bad_output"
    HTTP_ERROR = "http_error"

    def __str__(self) -> str:
        return self.value


# Families that hold many faults: for them the root's shape belongs to the error type as well.
_WIDE = frozenset({Family.OTHER, Family.HTTP_ERROR, Family.BAD_OUTPUT})


@dataclass(frozen=True)
class Signature:
    """The error type: what a search compares.

    `template` is the root line's shape for `other`, and the kind of the answer for `http_error` and `bad_output` ("HTTP
    500", "empty answer"); it is empty for every other family, and in a claim that a user made.
    """

    stage: Stage
    family: Family
    template: str = ""

    def __str__(self) -> str:
        return f"{self.stage}/{self.family}"

    def answers(self, claim: Signature) -> bool:
        """Whether this is what a claim means: a claim without a template means every one of its family."""
        same = (self.stage, self.family) == (claim.stage, claim.family)
        return same and claim.template in ("", self.template)


@dataclass(frozen=True)
class Failure:
    """One seen failure with its evidence.

    `root_line_no` counts from 1 in the log it was taken from and is None where no log line tells (an HTTP answer, an
    exit without a word). `root_template` is the root line with numbers, addresses and paths replaced. `consequences`
    are line numbers that only follow from the root. `reached` is what was proven done, in time order.
    """

    stage: Stage
    family: Family
    root_line: str | None = None
    root_line_no: int | None = None
    root_template: str = ""
    consequences: tuple[int, ...] = ()
    reached: tuple[Stage, ...] = ()
    vllm_version: str | None = None
    confidence: float = 0.0
    detail: str = ""

    @property
    def signature(self) -> Signature:
        return Signature(self.stage, self.family, self.root_template if self.family in _WIDE else "")
