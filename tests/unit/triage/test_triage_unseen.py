"""Logs in the shapes of many releases and wrappers, written for this test: what triage must say without having seen them."""

from __future__ import annotations

import pytest

from repro.triage import triage_text


def v1(process: str, source: str, *lines: str, level: str = "ERROR", clock: str = "10-18 03:20:36") -> str:
    prefix = f"({process}) " if process else ""
    return "".join(f"{prefix}{level} {clock} [{source}] {line}\n" for line in lines)


def old(source: str, *lines: str, process: str = "", level: str = "ERROR") -> str:
    prefix = f"({process}) " if process else ""
    return "".join(f"{prefix}{level} 03-05 17:44:06 {source}] {line}\n" for line in lines)


def trace(*frames: tuple[str, str, str], end: str) -> tuple[str, ...]:
    lines = ["Traceback (most recent call last):"]
    for path, name, code in frames:
        lines += [f'  File "/usr/local/lib/python3.12/dist-packages/{path}", line 12, in {name}', f"    {code}"]
    return (*lines, end)


BANNER_10 = (
    "INFO 10-18 03:19:00 [__init__.py:241] Automatically detected platform cuda.\n"
    "(APIServer pid=1) INFO 10-18 03:19:10 [api_server.py:1805] vLLM API server version 0.10.2\n"
    "(APIServer pid=1) INFO 10-18 03:19:11 [utils.py:326] non-default args: {'model': '/m'}\n"
)
ENGINE_10 = "(EngineCore_DP0 pid=59) INFO 10-18 03:19:20 [core.py:96] Initializing a V1 LLM engine (v0.10.2) with config: model='/m'\n"
LOADING_10 = (
    "(EngineCore_DP0 pid=59) INFO 10-18 03:19:30 [parallel_state.py:1165] rank 0 in world size 1 is assigned as DP rank 0,"
    " PP rank 0, TP rank 0, EP rank 0\n"
    "(EngineCore_DP0 pid=59) INFO 10-18 03:19:31 [gpu_model_runner.py:2338] Starting to load model /m...\n"
)
LOADED_10 = "(EngineCore_DP0 pid=59) INFO 10-18 03:20:01 [gpu_model_runner.py:2392] Model loading took 14.2 GiB and 29.8 seconds\n"
READY_10 = "(APIServer pid=1) INFO:     Application startup complete.\n"
CORE = ("vllm/v1/engine/core.py", "run_engine_core", "engine_core = EngineCoreProc(*args, **kwargs)")
LAST_WORDS = (
    "(APIServer pid=1) Traceback (most recent call last):\n"
    '(APIServer pid=1)   File "/usr/local/bin/vllm", line 10, in <module>\n'
    "(APIServer pid=1)     sys.exit(main())\n"
    "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
)


def engine(*frames: tuple[str, str, str], end: str) -> str:
    body = trace(CORE, *frames, end=end)
    bare = "".join(f"(EngineCore_DP0 pid=59) {line}\n" for line in ("Process EngineCore_DP0:", *body))
    return v1("EngineCore_DP0 pid=59", "core.py:718", "EngineCore failed to start.", *body) + bare + LAST_WORDS


START = BANNER_10 + ENGINE_10
CASES: dict[str, tuple[str, str, str, str]] = {
    "gpu memory before the weights": (
        START + engine(end="ValueError: Free memory on device (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB)."),
        "engine_init", "oom_gpu", "Free memory on device (3.22",
    ),
    "gpu memory while loading": (
        START + LOADING_10 + engine(
            ("vllm/model_executor/model_loader/default_loader.py", "load_weights", "self.load_weights(model)"),
            end="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 23.64 GiB of which 30 MiB is free."),
        "engine_init", "oom_gpu", "Tried to allocate 224.00 MiB",
    ),
    "tensor name of a quantised checkpoint": (
        START + LOADING_10 + engine(
            ("vllm/model_executor/model_loader/default_loader.py", "load_weights", "model.load_weights("),
            ("vllm/model_executor/models/glm4_moe.py", "load_weights", "param = params_dict[name_mapped]"),
            end="KeyError: 'layers.1.mlp.experts.w13_weight'"),
        "weight_access", "weights_corrupt", "w13_weight",
    ),
    "layer cannot be split that way": (
        START + LOADING_10 + engine(
            ("vllm/model_executor/model_loader/base_loader.py", "load_model", "model = initialize_model("),
            ("vllm/model_executor/layers/quantization/utils/marlin_utils.py", "verify_marlin_supports_shape", "raise ValueError("),
            end="ValueError: Weight input_size_per_partition = 10944 is not divisible by min_thread_k = 128. Consider reducing tensor_parallel_size."),
        "engine_init", "config_invalid", "input_size_per_partition",
    ),
    "fp8 cache and backend": (
        START + engine(
            ("vllm/v1/attention/backends/flash_attn.py", "__init__", "raise NotImplementedError("),
            end="NotImplementedError: FlashAttention does not support fp8 kv-cache on this device."),
        "engine_init", "config_invalid", "does not support fp8",
    ),
    "no compiler for flashinfer": (
        START + LOADING_10 + LOADED_10 + engine(
            ("vllm/v1/sample/ops/topk_topp_sampler.py", "flashinfer_sample", "next_token_ids = flashinfer.sampling.top_k("),
            ("flashinfer/jit/core.py", "build_and_load", "run_ninja(self.build_dir)"),
            end="FileNotFoundError: [Errno 2] No such file or directory: 'nvcc'"),
        "engine_init", "kernel_compile", "'nvcc'",
    ),
    "gpu too new for the build": (
        START + LOADING_10 + engine(
            ("vllm/model_executor/layers/vocab_parallel_embedding.py", "forward", "masked_input = ..."),
            end="RuntimeError: CUDA error: no kernel image is available for execution on the device"),
        "engine_init", "kernel_compile", "no kernel image",
    ),
    "old nccl worker": (
        "INFO 03-05 17:43:00 api_server.py:912] vLLM API server version 0.7.2\n"
        "INFO 03-05 17:43:40 llm_engine.py:234] Initializing a V0 LLM engine (v0.7.2) with config: model='/m'\n"
        "(VllmWorkerProcess pid=773) INFO 03-05 17:44:00 pynccl.py:69] vLLM is using nccl==2.21.5\n"
        + old("multiproc_worker_utils.py:242", "Exception in worker VllmWorkerProcess while processing method init_device.",
              *trace(("vllm/distributed/device_communicators/pynccl_wrapper.py", "NCCL_CHECK", 'raise RuntimeError(f"NCCL error: {error_str}")'),
                     end="RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
              process="VllmWorkerProcess pid=773"),
        "comm_group", "nccl", "unhandled system error",
    ),
    "nccl warning first": (
        START + "(EngineCore_DP0 pid=59) INFO 10-18 03:19:25 [pynccl.py:103] vLLM is using nccl==2.27.3\n"
        "node7:59:59 [0] NCCL WARN Cuda failure 'named symbol not found'\n"
        + engine(("vllm/distributed/device_communicators/pynccl.py", "__init__", "self.nccl.ncclCommInitRank("),
                 end="RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
        "comm_group", "nccl", "named symbol not found",
    ),
    "gloo full mesh through ray": (
        "(RayWorkerWrapper pid=933, ip=10.1.2.3) [rank1]:[E528 08:52:46.164295950 ProcessGroupGloo.cpp:145] Gloo connectFullMesh failed"
        " with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"
        + old("worker_base.py:382", "Error executing method init_device. This might cause deadlock in distributed execution.",
              *trace(("torch/distributed/distributed_c10d.py", "_new_process_group_helper", "backend_class = ProcessGroupGloo("),
                     end="RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"),
              process="RayWorkerWrapper pid=933, ip=10.1.2.3"),
        "comm_group", "gloo", "ProcessGroupGloo.cpp:145",
    ),
    "store keys never come": (
        "(Worker pid=2437) INFO 08-31 05:52:00 [parallel_state.py:1700] world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.1:29500 backend=nccl\n"
        + v1("Worker pid=2437", "multiproc_executor.py:944", "WorkerProc failed to start.",
             *trace(("torch/distributed/rendezvous.py", "_create_c10d_store", "return TCPStore("),
                    end="torch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /default_pg/0//2//cpu//0/2")),
        "comm_group", "rendezvous_timeout", "wait timeout after",
    ),
    "header and traceback on one line": (
        "vllm_server  | INFO 04-15 02:01:00 [core.py:61] Initializing a V1 LLM engine (v0.8.4) with config: model='/m'\n"
        "vllm_server  | ERROR 04-15 02:01:15 [core.py:387] EngineCore hit an exception: Traceback (most recent call last):\n"
        'vllm_server  | ERROR 04-15 02:01:15 [core.py:387]   File "/usr/local/lib/python3.12/dist-packages/vllm/v1/worker/gpu_worker.py", line 111, in init_device   \n'
        "vllm_server  | ERROR 04-15 02:01:15 [core.py:387]     torch.cuda.set_device(self.device)          \n"
        "vllm_server  | ERROR 04-15 02:01:15 [core.py:387] RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803: system has unsupported display driver / cuda driver combination   \n",
        "device_recognition", "driver_mismatch", "Error 803",
    ),
    "indentation lost and curly quotes": (
        "(EngineCore_DP0 pid=5) INFO 10-15 08:32:29 [pynccl.py:103] vLLM is using nccl==2.27.3\n"
        "(EngineCore_DP0 pid=5) ERROR 10-15 08:32:29 [core.py:708] EngineCore failed to start.\n"
        "(EngineCore_DP0 pid=5) ERROR 10-15 08:32:29 [core.py:708] Traceback (most recent call last):\n"
        "(EngineCore_DP0 pid=5) ERROR 10-15 08:32:29 [core.py:708] File “/x/vllm/v1/engine/core.py”, line 699, in run_engine_core\n"
        "(EngineCore_DP0 pid=5) ERROR 10-15 08:32:29 [core.py:708] engine_core = EngineCoreProc(*args, **kwargs)\n"
        "(EngineCore_DP0 pid=5) ERROR 10-15 08:32:29 [core.py:708] ValueError: No available memory for the cache blocks.\n",
        "engine_init", "kv_cache_too_small", "No available memory",
    ),
    "another rank's traceback inside ray's": (
        v1("EngineCore_DP0 pid=479", "core.py:793", "EngineCore failed to start.",
           *trace(("ray/_private/worker.py", "get_objects", "raise value.as_instanceof_cause()"),
                  end="ray.exceptions.RayTaskError(KeyError): ray::RayWorkerWrapper.execute_method() (pid=223, ip=10.0.0.7)"),
           '  File "/x/vllm/model_executor/models/granite.py", line 9, in load_weights', "    param = params_dict[name]",
           "KeyError: 'model.layers.0.block_sparse_moe.input_linear.weight_scale'"),
        "weight_access", "weights_corrupt", "input_linear.weight_scale",
    ),
    "too few devices for ray": (
        BANNER_10 + ENGINE_10
        + "(EngineCore_DP0 pid=59) WARNING 10-18 03:19:21 [ray_utils.py:352] Tensor parallel size (16) exceeds available GPUs (8).\n"
        + engine(("vllm/executor/ray_utils.py", "initialize_ray_cluster", "raise ValueError("),
                 end="ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group."),
        "device_recognition", "config_invalid", "exceeds the total number",
    ),
    "c++ abort is the only trace": (
        START + LOADING_10 + LOADED_10
        + "(EngineCore_DP0 pid=59) INFO 10-18 03:20:20 [core.py:210] init engine (profile, create kv cache, warmup model) took 19.00 seconds\n"
        + READY_10
        + "terminate called after throwing an instance of 'c10::AcceleratorError'\n"
        "  what():  CUDA error: an illegal memory access was encountered\n"
        + v1("APIServer pid=1", "async_llm.py:480", "AsyncLLM output_handler failed.",
             *trace(("vllm/v1/engine/core_client.py", "get_output_async", "raise self._format_exception(outputs) from None"),
                    end="vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.")),
        "serving", "illegal_memory_access", "what():",
    ),
    "hub model gated": (
        BANNER_10 + "".join(f"(APIServer pid=1) {line}\n" for line in trace(
            ("huggingface_hub/utils/_http.py", "hf_raise_for_status", "raise _format(GatedRepoError, message, response) from e"),
            end="huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-6)")),
        "weight_access", "permission", "GatedRepoError",
    ),
    "model type unknown to transformers": (
        BANNER_10 + "".join(f"(APIServer pid=1) {line}\n" for line in (
            *trace(("transformers/models/auto/configuration_auto.py", "from_pretrained", 'config_class = CONFIG_MAPPING[config_dict["model_type"]]'),
                   end="KeyError: 'kimi_k3'"),
            "", "During handling of the above exception, another exception occurred:", "",
            *trace(("vllm/transformers_utils/config.py", "get_config", "raise e"),
                   end="ValueError: The checkpoint you are trying to load has model type `kimi_k3` but Transformers does not recognize this architecture."))),
        "engine_init", "unsupported_arch", "KeyError: 'kimi_k3'",
    ),
    "message above its own traceback": (
        "INFO 06-16 02:05:15 [llm_engine.py:240] Initializing a V0 LLM engine (v0.9.1) with config: model='/m'\n"
        + v1("", "engine.py:458", "User-specified attention head count (5) must be divisible by tensor parallel size (4).",
             *trace(("vllm/engine/multiprocessing/engine.py", "run_mp_engine", "engine = MQLLMEngine.from_vllm_config("),
                    end="ValueError: User-specified attention head count (5) must be divisible by tensor parallel size (4)."))
        + "RuntimeError: Engine process failed to start. See stack trace for the root cause.\n",
        "engine_init", "config_invalid", "[engine.py:458] User-specified",
    ),
    "docker json with a shell": (
        '{"log":"/bin/bash: line 1: vllm: command not found\\n","stream":"stderr","time":"2025-10-18T03:19:00.000000000Z"}\n',
        "container_init", "entrypoint", "command not found",
    ),
    "kubelet": (
        'Failed to pull image "vllm/vllm-openai:nope": rpc error: code = NotFound desc = failed to pull and unpack image: not found\n',
        "container_init", "image_missing", "Failed to pull",
    ),
    "shared memory too small": (
        START + "(EngineCore_DP0 pid=59) INFO 10-18 03:19:25 [pynccl.py:103] vLLM is using nccl==2.27.3\n"
        "node7:59:59 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-vXLPwi to 33030532 bytes, error: No space left on device (28)\n"
        + engine(("vllm/distributed/device_communicators/pynccl_wrapper.py", "NCCL_CHECK", "raise RuntimeError("),
                 end="RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
        "comm_group", "shm", "/dev/shm/nccl-",
    ),
    "stop that is no failure": (
        START + LOADING_10 + READY_10
        + '(APIServer pid=1) INFO:     127.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        "(APIServer pid=1) INFO:     Shutting down\n(APIServer pid=1) INFO:     Application shutdown complete.\n"
        + v1("APIServer pid=1", "async_llm.py:480", "AsyncLLM output_handler failed."),
        "none", "", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_names_stage_family_and_root(name: str) -> None:
    text, stage, family, root = CASES[name]
    answer = triage_text(text)
    assert (answer.stage.value, answer.family.value if answer.family else "") == (stage, family), answer
    assert root in (answer.root_line or "")
    assert answer.is_vllm_log


@pytest.mark.parametrize("name", CASES)
def test_every_chunking_gives_the_same_answer(name: str) -> None:
    from repro.triage import Triage

    text = CASES[name][0]
    whole = triage_text(text)
    pieces = Triage()
    raw = text.encode()
    for start in range(0, len(raw), 17):
        pieces.feed(raw[start : start + 17])
    pieces.finish()
    assert pieces.diagnose() == whole
