"""Data: the places in vLLM 0.32 that its tracebacks pass through, so that failures read like real ones."""

from __future__ import annotations

Frame = tuple[str, int, str, str]
"""File below the packages folder, line number, function, source line."""


EXECUTE: tuple[Frame, ...] = (
    ("vllm/v1/worker/gpu_worker.py", 1328, "execute_model", "output = self.model_runner.execute_model("),
    ("vllm/v1/worker/gpu/model_runner.py", 1904, "execute_model", "model_output = self.model(**model_inputs)"),
)
LOAD: tuple[Frame, ...] = (
    (
        "vllm/v1/worker/gpu_worker.py",
        596,
        "load_model",
        "self.model_runner.load_model(load_dummy_weights=dummy_weights)",
    ),
    ("vllm/v1/worker/gpu/model_runner.py", 396, "load_model", "self.model = model or model_loader.load_model("),
    ("vllm/model_executor/model_loader/base_loader.py", 91, "load_model", "self.load_weights(model, model_config)"),
)
INIT_DEVICE: tuple[Frame, ...] = (
    ("vllm/v1/worker/worker_base.py", 350, "init_device", "self.worker.init_device()  # type: ignore"),
)
INIT_GROUP: tuple[Frame, ...] = (
    *INIT_DEVICE,
    ("vllm/v1/worker/gpu_worker.py", 494, "init_device", "init_worker_distributed_environment("),
    (
        "vllm/distributed/parallel_state.py",
        1953,
        "init_distributed_environment",
        "torch.distributed.init_process_group(",
    ),
)
NCCL: tuple[Frame, ...] = (
    ("vllm/distributed/device_communicators/pynccl.py", 171, "__init__", "self.comm = self.nccl.ncclCommInitRank("),
    (
        "vllm/distributed/device_communicators/pynccl_wrapper.py",
        448,
        "NCCL_CHECK",
        'raise RuntimeError(f"NCCL error: {error_str}")',
    ),
)
PROFILE: tuple[Frame, ...] = (
    ("vllm/v1/worker/gpu_worker.py", 688, "determine_available_memory", "self.model_runner.profile_run()"),
    (
        "vllm/v1/worker/gpu/model_runner.py",
        812,
        "profile_run",
        "hidden_states, sample_hidden_states = self._dummy_run(",
    ),
)
CONFIG: tuple[Frame, ...] = (
    ("vllm/engine/arg_utils.py", 2240, "create_engine_config", "model_config = self.create_model_config()"),
    ("vllm/engine/arg_utils.py", 1955, "create_model_config", "return ModelConfig("),
    (
        "pydantic/_internal/_dataclasses.py",
        121,
        "__init__",
        "s.__pydantic_validator__.validate_python(ArgsKwargs(args, kwargs), self_instance=s)",
    ),
)
KV_CHECK: tuple[Frame, ...] = (
    ("vllm/v1/engine/core.py", 326, "_initialize_kv_caches", "kv_cache_configs = get_kv_cache_configs("),
    ("vllm/v1/core/kv_cache_utils.py", 2642, "get_kv_cache_configs", "_check_enough_kv_cache_memory("),
    ("vllm/v1/core/kv_cache_utils.py", 1027, "_check_enough_kv_cache_memory", "raise ValueError("),
)
SCHEDULE: tuple[Frame, ...] = (
    ("vllm/v1/engine/core.py", 668, "step", "scheduler_output = self.scheduler.schedule()"),
    ("vllm/v1/core/sched/scheduler.py", 702, "schedule", "self.kv_cache_manager.get_computed_blocks(request)"),
    (
        "vllm/v1/core/kv_cache_coordinator.py",
        611,
        "find_longest_cache_hit",
        "hit_blocks = manager_cls.find_longest_cache_hit(",
    ),
)

API_SERVER: tuple[Frame, ...] = (
    ("/usr/local/bin/vllm", 10, "<module>", "sys.exit(main())"),
    ("vllm/entrypoints/cli/main.py", 120, "main", "args.dispatch_function(args)"),
    ("vllm/entrypoints/cli/serve.py", 156, "cmd", "uvloop.run(run_server(args))"),
    ("uvloop/__init__.py", 96, "run", "return __asyncio.run("),
    (
        "vllm/entrypoints/launchers/api_server/entry.py",
        177,
        "run_server",
        "await run_server_worker(listen_address, sock, args, **uvicorn_kwargs)",
    ),
)
START_CLIENT: tuple[Frame, ...] = (
    *API_SERVER,
    ("vllm/v1/engine/async_llm.py", 184, "__init__", "self.engine_core = EngineCoreClient.make_async_mp_client("),
    ("vllm/v1/engine/core_client.py", 682, "__init__", "with launch_core_engines("),
    ("vllm/v1/engine/utils.py", 1431, "wait_for_engine_startup", "raise RuntimeError("),
)
START_ENGINE: tuple[Frame, ...] = (
    (
        "vllm/v1/engine/core.py",
        1482,
        "run_engine_core",
        "engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)",
    ),
    ("vllm/v1/engine/core.py", 1194, "__init__", "super().__init__("),
)
START_EXECUTOR: tuple[Frame, ...] = (
    *START_ENGINE,
    ("vllm/v1/engine/core.py", 144, "__init__", "self.model_executor = executor_class(vllm_config)"),
)
WAIT_FOR_WORKERS: tuple[Frame, ...] = (
    *START_EXECUTOR,
    (
        "vllm/v1/executor/multiproc_executor.py",
        215,
        "_init_executor",
        "self.workers = WorkerProc.wait_for_ready(unready_workers)",
    ),
    ("vllm/v1/executor/multiproc_executor.py", 815, "wait_for_ready", "raise e from None"),
)
CALL_WORKERS: tuple[Frame, ...] = (
    *START_ENGINE,
    ("vllm/v1/engine/core.py", 157, "__init__", "kv_cache_config = self._initialize_kv_caches(vllm_config)"),
    ("vllm/v1/executor/multiproc_executor.py", 444, "get_response", "raise RuntimeError("),
)
START_WORKER: tuple[Frame, ...] = (
    ("vllm/v1/executor/multiproc_executor.py", 921, "worker_main", "worker = WorkerProc(*args, **kwargs)"),
)
WORKER_CALL: tuple[Frame, ...] = (
    ("vllm/v1/executor/multiproc_executor.py", 1055, "_execute_worker_rpc", "output = func(*args, **kwargs)"),
)
BUSY_LOOP: tuple[Frame, ...] = (
    ("vllm/v1/engine/core.py", 1496, "run_engine_core", "engine_core.run_busy_loop()"),
    ("vllm/v1/engine/core.py", 1555, "run_busy_loop", "self._process_engine_step()"),
    ("vllm/v1/engine/core.py", 1606, "_process_engine_step", "outputs, model_executed = self.step_fn()"),
)
WORKER_RESPONSE: tuple[Frame, ...] = (
    ("vllm/v1/engine/core.py", 674, "step", "model_output = future.result()"),
    ("vllm/v1/executor/multiproc_executor.py", 444, "get_response", "raise RuntimeError("),
)
OUTPUT_HANDLER: tuple[Frame, ...] = (
    ("vllm/v1/engine/async_llm.py", 849, "output_handler", "outputs = await engine_core.get_output_async()"),
    ("vllm/v1/engine/core_client.py", 1235, "get_output_async", "raise self._format_exception(outputs) from None"),
)
