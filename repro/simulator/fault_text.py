"""Data: what each family of fault looks like in vLLM 0.32's logs on GPUs. Extending the stand-in is adding an entry here.

A text's `root` may name `{model}`, `{max_model_len}`, `{host}`, `{port}` and `{architecture}`. Its frames are the inner end of the
traceback; `failure_log` puts the outer frames, the process and the consequences around them. Sources: own runs of 0.32 on
CPU for everything the engine, the configuration and the group say; public reports for CUDA's and NCCL's own sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.simulator import traceback_frames as at
from repro.simulator.traceback_frames import Frame

# When a start can fail, in time order. A fault's stage chooses the moment unless its text names another for that stage.
MOMENTS = ("arguments", "import", "bind", "config", "device", "group", "weights", "engine", "cache", "api")
MOMENT_OF_STAGE: dict[Stage, str] = {
    Stage.CONTAINER_INIT: "import",
    Stage.DEVICE_RECOGNITION: "device",
    Stage.COMM_GROUP: "group",
    Stage.WEIGHT_ACCESS: "weights",
    Stage.ENGINE_INIT: "engine",
    Stage.API_READY: "api",
}


@dataclass(frozen=True)
class FaultText:
    """One family's words and habits.

    `process` is who raises while starting: `worker`, `engine`, `api` or `parser` (argparse). `noise` are bare lines that come
    just before, `debug_noise` only with NCCL_DEBUG set. `serving_root` replaces `root` once the server answers requests.
    """

    root: str
    frames: tuple[Frame, ...] = ()
    process: str = "worker"
    noise: tuple[str, ...] = ()
    debug_noise: tuple[str, ...] = ()
    serving_root: str = ""
    serving_frames: tuple[Frame, ...] = ()
    moments: dict[Stage, str] = field(default_factory=dict)
    starting_deed: str = "error"
    serving_deed: str = "crash"
    status: int = 500


_OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacity of 267.69 GiB of which "
    "{free} is free. Including non-PyTorch memory, this process has 262.14 GiB memory in use. Of the allocated memory "
    "251.20 GiB is allocated by PyTorch, and 1.77 GiB is reserved by PyTorch but unallocated. If reserved but unallocated "
    "memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
    "documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
_CUDA_ADVICE = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect."
    "\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
_PYDANTIC = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, {text}"
_PYDANTIC_END = (
    " [type=value_error, input_value=ArgsKwargs((), {{'model': ...'auto'}}), input_type=ArgsKwargs]"
    "\n    For further information visit https://errors.pydantic.dev/2.14/v/value_error"
)

TEXTS: dict[Family, FaultText] = {
    Family.IMPORT_ERROR: FaultText(
        root="ImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
        frames=(
            ("vllm/entrypoints/cli/main.py", 21, "main", "import vllm.entrypoints.cli.serve"),
            ("vllm/platforms/cuda.py", 21, "<module>", "import vllm._C  # noqa"),
        ),
        process="api",
    ),
    Family.ARG_ERROR: FaultText(
        root="argument --kv-cache-dtype: invalid choice: 'fp8_e3m4' (choose from auto, float16, bfloat16, fp8, fp8_e4m3)",
        process="parser",
        moments={Stage.ENGINE_INIT: "arguments"},
        serving_deed="error",
        status=400,
    ),
    Family.PORT_IN_USE: FaultText(
        root="OSError: [Errno 98] Address already in use",
        frames=(
            (
                "vllm/entrypoints/launchers/launcher.py",
                398,
                "setup_server",
                "sock = create_server_socket(sock_addr, reuse_port=reuse_port)",
            ),
            ("vllm/entrypoints/launchers/launcher.py", 348, "create_server_socket", "sock.bind(addr)"),
        ),
        process="api",
        moments={Stage.API_READY: "bind"},
    ),
    Family.CONFIG_INVALID: FaultText(
        root=_PYDANTIC.format(
            text="User-specified max_model_len ({max_model_len}) is greater than the derived max_model_len "
            "(max_position_embeddings=1048576 or model_max_length=None in model's config.json). To allow overriding this "
            "maximum, set the env var VLLM_ALLOW_LONG_MAX_MODEL_LEN=1. VLLM_ALLOW_LONG_MAX_MODEL_LEN must be used with extreme "
            "caution. If the model uses relative position encoding (RoPE), positions exceeding derived_max_model_len lead to nan."
        )
        + _PYDANTIC_END,
        frames=at.CONFIG,
        process="api",
        moments={Stage.ENGINE_INIT: "config"},
    ),
    Family.UNSUPPORTED_ARCH: FaultText(
        root=_PYDANTIC.format(
            text="Model architectures ['{architecture}'] are not supported for now. Supported architectures: dict_keys(['AfmoeForCausalLM', 'ApertusForCausalLM'])"
        )
        + _PYDANTIC_END,
        frames=at.CONFIG,
        process="api",
        moments={Stage.ENGINE_INIT: "config"},
    ),
    Family.TOOL_PARSER: FaultText(
        root="RuntimeError: Kimi-K3 Tool parser could not locate tool call start/end tokens in the tokenizer!",
        frames=(("vllm/tool_parsers/kimi_k3_tool_parser.py", 88, "__init__", "raise RuntimeError("),),
        process="api",
        moments={Stage.ENGINE_INIT: "api"},
        serving_root="ValueError: call channel closed before its arguments were complete",
        serving_frames=(
            (
                "vllm/tool_parsers/kimi_k3_tool_parser.py",
                214,
                "extract_tool_calls",
                "calls = self._read_calls(model_output)",
            ),
        ),
        serving_deed="broken_tool_call",
    ),
    Family.HUB_UNREACHABLE: FaultText(
        root="OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
        frames=(("transformers/utils/hub.py", 564, "cached_files", "raise OSError("),),
        process="api",
        moments={Stage.WEIGHT_ACCESS: "config"},
    ),
    Family.DRIVER_MISMATCH: FaultText(
        root="RuntimeError: The NVIDIA driver on your system is too old (found version 12090). Please update your GPU driver by "
        "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to: "
        "https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver.",
        frames=(*at.INIT_DEVICE, ("torch/cuda/__init__.py", 478, "_lazy_init", "torch._C._cuda_init()")),
    ),
    Family.CUDA_INIT: FaultText(
        root="RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
        "NumCudaDevices() that might have already set an error? Error 802: system not yet initialized",
        frames=(*at.INIT_DEVICE, ("torch/cuda/__init__.py", 478, "_lazy_init", "torch._C._cuda_init()")),
    ),
    Family.NCCL: FaultText(
        root="RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        frames=(*at.INIT_GROUP[:2], *at.NCCL),
        debug_noise=("node0:4242:4801 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'",),
        serving_root="RuntimeError: NCCL error: remote process exited or there was a network error",
        serving_frames=(
            *at.EXECUTE,
            ("vllm/distributed/device_communicators/pynccl.py", 212, "all_reduce", "self.nccl.ncclAllReduce("),
            at.NCCL[1],
        ),
    ),
    Family.GLOO: FaultText(
        root="RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:59019",
        frames=at.INIT_GROUP,
        serving_frames=at.EXECUTE,
    ),
    Family.RENDEZVOUS_TIMEOUT: FaultText(
        root="torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        frames=(*at.INIT_GROUP, ("torch/distributed/rendezvous.py", 199, "_create_c10d_store", "return TCPStore(")),
    ),
    Family.SHM: FaultText(
        root="OSError: [Errno 28] No space left on device: '/dev/shm/psm_3f1c8a92'",
        frames=(
            (
                "vllm/distributed/device_communicators/shm_broadcast.py",
                231,
                "__init__",
                "self.shared_memory = shared_memory.SharedMemory(",
            ),
        ),
    ),
    Family.WEIGHTS_MISSING: FaultText(
        root="RuntimeError: Cannot find any model weights with `{model}`",
        frames=(
            *at.LOAD,
            ("vllm/model_executor/model_loader/default_loader.py", 259, "_prepare_weights", "raise RuntimeError("),
        ),
    ),
    Family.WEIGHTS_CORRUPT: FaultText(
        root="safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered",
        frames=(
            *at.LOAD,
            (
                "vllm/model_executor/model_loader/weight_utils.py",
                1187,
                "safetensors_weights_iterator",
                'with safe_open(st_file, framework="pt") as f:',
            ),
        ),
    ),
    Family.PERMISSION: FaultText(
        root="PermissionError: [Errno 13] Permission denied: '{model}/model-00001-of-000096.safetensors'",
        frames=at.LOAD,
    ),
    Family.OOM_GPU: FaultText(
        root=_OUT_OF_MEMORY.format(size="14.00 GiB", free="5.55 GiB"),
        frames=at.LOAD,
        # Memory is the engine's matter, but it runs out while the weights are loaded.
        moments={Stage.ENGINE_INIT: "weights"},
        serving_root=_OUT_OF_MEMORY.format(size="2.62 GiB", free="1.08 GiB"),
        serving_frames=(
            *at.EXECUTE,
            (
                "vllm/model_executor/layers/fused_moe/modular_kernel.py",
                1402,
                "forward",
                "output = torch.empty(output_shape, dtype=dtype, device=device)",
            ),
        ),
    ),
    Family.KV_CACHE_TOO_SMALL: FaultText(
        root="ValueError: To serve at least one request with the model's max seq len ({max_model_len}), (27.4 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (19.2 GiB). Based on the available memory, the estimated maximum "
        "model length is 734720. Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or "
        "decreasing `max_model_len` when initializing the engine. See "
        "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details.",
        frames=at.KV_CHECK,
        process="engine",
        moments={Stage.ENGINE_INIT: "cache"},
    ),
    Family.KERNEL_COMPILE: FaultText(
        root="triton.runtime.errors.PTXASError: PTXAS error: Internal Triton PTX codegen error\n`ptxas` stderr:\n"
        "ptxas fatal   : Value 'sm_103a' is not defined for option 'gpu-name'\n",
        frames=(*at.PROFILE, ("triton/backends/nvidia/compiler.py", 461, "make_cubin", "raise PTXASError(error)")),
    ),
    Family.ILLEGAL_MEMORY_ACCESS: FaultText(
        root="torch.AcceleratorError: CUDA error: an illegal memory access was encountered" + _CUDA_ADVICE,
        frames=(*at.PROFILE, ("torch/cuda/__init__.py", 1085, "synchronize", "return torch._C._cuda_synchronize()")),
        serving_frames=(
            *at.EXECUTE,
            ("vllm/v1/worker/gpu/async_utils.py", 74, "get_output", "self.copy_event.synchronize()"),
        ),
    ),
    Family.PREFIX_CACHE: FaultText(
        root="AssertionError: prefix cache hash block size 16 does not divide block size 1536",
        frames=(("vllm/v1/core/kv_cache_coordinator.py", 540, "__init__", "assert hash_block_size == block_size"),),
        process="engine",
        moments={Stage.ENGINE_INIT: "cache"},
        serving_root="AssertionError: prefix cache hit of 3073 tokens is not aligned with block size 1536",
        serving_frames=(
            *at.SCHEDULE,
            (
                "vllm/v1/core/single_type_kv_cache_manager.py",
                968,
                "find_longest_cache_hit",
                "assert num_hit_tokens % block_size == 0, (",
            ),
        ),
    ),
    Family.TIMEOUT: FaultText(
        root="TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight loading for large models.",
        process="api",
        serving_root="TimeoutError: RPC call to execute_model timed out.",
        serving_frames=(
            (
                "vllm/v1/executor/multiproc_executor.py",
                432,
                "get_response",
                'raise TimeoutError(f"RPC call to {method} timed out.") from e',
            ),
        ),
    ),
    Family.OTHER: FaultText(
        root="RuntimeError: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k)`",
        frames=at.PROFILE,
        serving_frames=at.EXECUTE,
    ),
    Family.OOM_HOST: FaultText(root="", starting_deed="kill", serving_deed="kill"),
    Family.ENGINE_DEAD: FaultText(root="", starting_deed="kill", serving_deed="kill"),
    Family.HANG: FaultText(root="", starting_deed="hang", serving_deed="hang"),
    Family.HTTP_ERROR: FaultText(
        root="RuntimeError: Internal server error while rendering the request", serving_deed="error"
    ),
    Family.CONTEXT_LENGTH: FaultText(
        root="This model's maximum context length is {max_model_len} tokens. However, your prompt contains {input_tokens} input tokens, "
        "which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
        serving_deed="error",
        status=400,
    ),
    Family.BAD_OUTPUT: FaultText(root="", serving_deed="empty"),
}


def moment_of(stage: Stage, family: Family) -> str:
    """When a start fails that is to fail at this stage with this family; one of `MOMENTS`."""
    return TEXTS[family].moments.get(stage, MOMENT_OF_STAGE[stage])
