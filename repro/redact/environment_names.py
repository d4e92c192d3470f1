"""Which environment variables belong to a launch, and which are secrets that may only be passed on by name.

An allowlist, not a blocklist: a name that nobody thought of is left out. Names after vLLM 0.32 (`vllm/envs.py`) and
what CUDA, NCCL, gloo, UCX, PyTorch, Triton, Hugging Face, Ray and ROCm read.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from repro.redact.secret_names import NameKind, kind_of_name
from repro.redact.shapes import holds_secret

LAUNCH_PATTERNS: tuple[str, ...] = (
    "VLLM_*",
    # CUDA and the loader
    "CUDA_*",
    "NVIDIA_*",
    "CUBLAS_*",
    "CUDNN_*",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    # communication
    "NCCL_*",
    "GLOO_*",
    "TP_SOCKET_IFNAME",
    "UCX_*",
    "NVSHMEM_*",
    "NIXL_*",
    "MOONCAKE_*",
    "LMCACHE_*",
    "MASTER_ADDR",
    "MASTER_PORT",
    # PyTorch, kernels, threads
    "TORCH_*",
    "TORCHINDUCTOR_*",
    "TORCHDYNAMO_*",
    "PYTORCH_*",
    "TRITON_*",
    "FLASHINFER_*",
    "DG_*",
    "OMP_*",
    "MKL_*",
    "KMP_*",
    "GOMP_*",
    "MALLOC_*",
    "PYTHONHASHSEED",
    "PYTHONPATH",
    # weights
    "HF_*",
    "HUGGINGFACE_HUB_CACHE",
    "TRANSFORMERS_*",
    "SAFETENSORS_*",
    "FASTSAFETENSORS_*",
    "TOKENIZERS_PARALLELISM",
    "XDG_CACHE_HOME",
    "S3_ENDPOINT_URL",
    # other platforms
    "RAY_*",
    "AITER_*",
    "HIP_*",
    "HSA_*",
    "ROCR_*",
    "ROCM_*",
    # network
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
)

# AWS names carry keys, session tokens and role names alike; none of them is needed in clear.
SECRET_PATTERNS: tuple[str, ...] = ("AWS_*", "S3_ACCESS_*", "S3_SECRET_*", "AZURE_*", "GOOGLE_APPLICATION_CREDENTIALS")

# What a server reads of them, to fetch weights from a hub or an object store.
STORE_KEYS: tuple[str, ...] = (
    "HUGGING_FACE_HUB_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "S3_ACCESS_KEY_ID",
    "S3_SECRET_ACCESS_KEY",
)


def is_secret_name(name: str) -> bool:
    """Whether the value of this variable is never written, whatever it looks like."""
    if any(fnmatchcase(name, pattern) for pattern in SECRET_PATTERNS):
        return True
    return kind_of_name(name) is not NameKind.HARMLESS or name.upper().endswith("_KEY")


def is_launch_name(name: str) -> bool:
    """Whether this variable belongs to the fingerprint of a launch and may be written."""
    return not is_secret_name(name) and any(fnmatchcase(name, pattern) for pattern in LAUNCH_PATTERNS)


def is_launch_secret(name: str) -> bool:
    """Whether a server may need this secret: not every token of a person's shell is passed on to it."""
    return is_secret_name(name) and any(fnmatchcase(name, pattern) for pattern in (*LAUNCH_PATTERNS, *STORE_KEYS))


def split_environment(environment: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """What a scenario may hold of an environment: values fixed on both ends, and names to pass through.

    An allowed name whose value carries a secret (a proxy URL with a password) is passed through by name as well.
    Both parts are sorted by name; every other variable is left out, secrets that no server reads included.
    """
    fixed: dict[str, str] = {}
    secrets: list[str] = []
    for name in sorted(environment):
        value = environment[name]
        if is_launch_secret(name) or (is_launch_name(name) and holds_secret(value)):
            secrets.append(name)
        elif is_launch_name(name):
            fixed[name] = value
    return fixed, tuple(secrets)
