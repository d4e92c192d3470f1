"""What a healthy start prints, moment by moment, in vLLM 0.32's own order and words for a start on GPUs; the words of
older versions are `dialect`'s matter.

The order is the one that matters to whoever reads it: configuration, engine, communication group, weights, cache and
graphs, API. Each generator stops at a moment of `fault_text.MOMENTS`, where the launch asks whether it is to fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from repro.simulator.arguments import ServeArguments
from repro.simulator.log import Log

_ROUTES = (
    *(("/load", "GET"), ("/version", "GET"), ("/health", "GET"), ("/metrics", "GET"), ("/tokenize", "POST")),
    *(("/detokenize", "POST"), ("/v1/models", "GET"), ("/ping", "GET"), ("/ping", "POST")),
    *(("/v1/chat/completions", "POST"), ("/v1/completions", "POST")),
)
_BANNER = (
    "",
    "       █     █     █▄   ▄█",
    " ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}",
    "  █▄█▀ █     █     █     █  model   {model}",
    "   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀",
    "",
)
_PLAIN_BANNER = "vLLM API server version {version}"


@dataclass(frozen=True)
class ModelFacts:
    """What the stand-in pretends about a model. Sizes are per GPU, in GiB."""

    architecture: str
    longest_context: int
    shards: int
    weights_gib: float
    cache_tokens: int


_KIMI_K3 = ModelFacts("KimiK3ForConditionalGeneration", 1_048_576, 96, 187.42, 2_621_440)
_OTHER = ModelFacts("Qwen3ForCausalLM", 1_048_576, 2, 15.27, 2_097_152)


def facts_of(model: str) -> ModelFacts:
    return _KIMI_K3 if "kimi-k3" in model.lower() else _OTHER


def max_model_len_of(arguments: ServeArguments) -> int:
    """Tokens of prompt and answer together: the flag's, else the model's longest."""
    asked = arguments.value("max_model_len")
    return int(asked) if asked and int(asked) > 0 else facts_of(arguments.model).longest_context


def cache_tokens_of(arguments: ServeArguments) -> int:
    """Tokens that the key-value cache holds, from --num-gpu-blocks-override, else the model's."""
    blocks = arguments.value("num_gpu_blocks_override")
    return int(blocks) * int(arguments.value("block_size")) if blocks else facts_of(arguments.model).cache_tokens


def walk(log: Log, arguments: ServeArguments) -> Iterator[str]:
    """Print the start; yields each moment when the start reaches it, before what follows it is printed."""
    yield "arguments"
    yield "import"
    _print_banner(log, arguments)
    yield "bind"
    yield "config"
    _print_configuration(log, arguments)
    yield "device"
    _print_group_attempt(log, arguments)
    yield "group"
    _print_group_formed(log, arguments)
    yield "weights"
    _print_weights(log, arguments)
    yield "engine"
    log.worker("INFO", "gpu_worker.py:760", "Available KV cache memory: 58.31 GiB")
    yield "cache"
    _print_cache_and_graphs(log, arguments)
    yield "api"


def _print_banner(log: Log, arguments: ServeArguments) -> None:
    if log.headless:
        return None
    for line in _BANNER if log.dialect.logo else (_PLAIN_BANNER,):
        log.api("INFO", "api_utils.py:347", line.format(version=log.dialect.version, model=arguments.model))
    return log.api("INFO", "api_utils.py:286", f"non-default args: {arguments.non_default()}")


def _print_configuration(log: Log, arguments: ServeArguments) -> None:
    facts = facts_of(arguments.model)
    log.api("INFO", "model.py:733", f"Resolved architecture: {facts.architecture}")
    log.api("INFO", "model.py:2152", f"Using max model len {max_model_len_of(arguments)}")
    batched = arguments.value("max_num_batched_tokens")
    log.api("INFO", "scheduler.py:307", f"Chunked prefill is enabled with max_num_batched_tokens={batched}.")
    if arguments.value("enforce_eager"):
        eager = "Enforce eager set, disabling torch.compile, CUDAGraphs, and JIT kernel warmup."
        log.api("WARNING", "vllm.py:1703", eager)
    if log.headless:
        head = f"{arguments.value('master_addr')}:{arguments.value('master_port')}"
        launching = (
            f"Launching vLLM (v{log.dialect.version}) headless multiproc executor, with head node address {head} "
        )
        return log.api("INFO", "serve.py:224", f"{launching}for torch.distributed process group.")
    return _print_engine(log, arguments)


def _print_engine(log: Log, arguments: ServeArguments) -> None:
    config = (
        f"model='{arguments.model}', tokenizer='{arguments.model}', dtype=torch.bfloat16, "
        f"max_seq_len={max_model_len_of(arguments)}, load_format={arguments.value('load_format')}, "
        f"tensor_parallel_size={arguments.value('tensor_parallel_size')}, "
        f"pipeline_parallel_size={arguments.value('pipeline_parallel_size')}, "
        f"enforce_eager={arguments.value('enforce_eager')}, kv_cache_dtype={arguments.value('kv_cache_dtype')}, "
        f"device_config=cuda, enable_prefix_caching={arguments.value('enable_prefix_caching')}"
    )
    log.engine("INFO", "core.py:133", f"Initializing a V1 LLM engine (v{log.dialect.version}) with config: {config}")
    if log.has_workers:
        sizes = f"world_size={arguments.world_size}, local_world_size={len(log.local_ranks)}"
        leader = f"DP group leader: node_rank={arguments.value('node_rank')}, node_rank_within_dp=0, "
        address = f"master_addr={arguments.value('master_addr')}, mq_connect_ip=127.0.0.1 (local), "
        log.engine("INFO", "multiproc_executor.py:153", leader + address + sizes)


def _print_group_attempt(log: Log, arguments: ServeArguments) -> None:
    method = f"tcp://{arguments.value('master_addr')}:{arguments.value('master_port')}"
    for local, rank in enumerate(log.local_ranks):
        sizes = f"world_size={arguments.world_size} rank={rank} local_rank={local}"
        log.worker("INFO", "parallel_state.py:1906", f"{sizes} distributed_init_method={method} backend=nccl", rank)


def _print_group_formed(log: Log, arguments: ServeArguments) -> None:
    world, tensor = arguments.world_size, int(arguments.value("tensor_parallel_size"))
    if world > 1 and not log.headless:
        log.worker("INFO", "pynccl.py:148", "vLLM is using nccl==2.30.7")
    expert = arguments.value("enable_expert_parallel")
    for rank in log.local_ranks:
        place = f"DP rank 0, PP rank {rank // tensor}, PCP rank 0, TP rank {rank % tensor}, ETP rank {rank % tensor}"
        assigned = f"rank {rank} in world size {world} is assigned as {place}"
        log.worker(
            "INFO",
            "parallel_state.py:2350",
            f"{assigned}, EP rank {rank if expert else 'N/A'}, EPLB rank N/A",
            rank,
        )
    log.groups_formed()
    log.worker("INFO", "gpu_worker.py:518", "Using V2 Model Runner")
    log.worker("INFO", "model_runner.py:392", "Loading model from scratch...")


def _print_weights(log: Log, arguments: ServeArguments) -> None:
    facts = facts_of(arguments.model)
    kind = "fastsafetensors" if arguments.value("load_format") == "fastsafetensors" else "safetensors"
    for percent, done in ((0, 0), (100, facts.shards)):
        pace = "00:00<?, ?it/s" if done == 0 else "00:41<00:00,  2.31it/s"
        log.worker_output(f"Loading {kind} checkpoint shards: {percent:3d}% Completed | {done}/{facts.shards} [{pace}]")
    log.worker_output("")
    log.worker("INFO", "default_loader.py:501", "Loading weights took 41.52 seconds")
    for rank in log.local_ranks:
        took = f"Model loading took {facts.weights_gib} GiB memory and 44.918273 seconds"
        log.worker("INFO", "model_runner.py:425", took, rank)
    backend = "FLASHINFER_MLA" if facts is _KIMI_K3 else "FLASH_ATTN"
    log.worker("INFO", "cuda.py:507", f"Using {backend} attention backend out of potential backends: ['{backend}'].")
    if not arguments.value("enforce_eager"):
        log.worker("INFO", "backends.py:1101", "Dynamo bytecode transform time: 9.42 s")
        log.worker("INFO", "monitor.py:34", "torch.compile takes 23.17 s in total")


def _print_cache_and_graphs(log: Log, arguments: ServeArguments) -> None:
    tokens, longest = cache_tokens_of(arguments), max_model_len_of(arguments)
    if log.headless:
        return
    size = f"GPU KV cache size: {tokens:,} tokens"
    requests = f"Maximum concurrency for {longest:,} tokens per request: {tokens / longest:.2f}x"
    if log.dialect.cache_on_two_lines:
        log.engine("INFO", "kv_cache_utils.py:2327", size)
        log.engine("INFO", "kv_cache_utils.py:2328", requests)
    else:
        log.engine("INFO", "kv_cache_utils.py:2327", f"{size}, {requests}")
    if not arguments.value("enforce_eager"):
        log.worker_output(
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 51/51 [00:06<00:00,  8.12it/s]"
        )
        log.worker("INFO", "model_runner.py:1127", "Graph capturing finished in 7 secs, took 1.94 GiB")
    log.engine("INFO", "core.py:402", "init engine (profile, create kv cache, warmup model) took 38.60 s")


def print_ready(log: Log, host: str, port: int, model: str) -> None:
    """From `Supported tasks` on, up to the line of `print_complete`."""
    if log.rust_frontend:
        log.api("INFO", "utils.py:372", f"Launching Rust frontend: vllm-frontend --host {host} --port {port}")
        starting = f"starting OpenAI server bind_address={host}:{port} model={model}"
        return log.rust("INFO", "server/src/lib.rs:133", starting)
    log.api("INFO", "entry.py:136", "Supported tasks: ['generate']")
    log.api("INFO", "entry.py:140", f"Starting vLLM server on http://{host}:{port}")
    log.api("INFO", "launcher.py:186", "Available routes are:")
    for path, method in _ROUTES:
        log.api("INFO", "launcher.py:195", f"Route: {path}, Methods: {method}")
    log.api_output(f"INFO:     Started server process [{log.pid}]")
    return log.api_output("INFO:     Waiting for application startup.")


def print_complete(log: Log) -> None:
    """The line that says ready; for whoever has the socket listening."""
    if log.rust_frontend:
        log.rust("INFO", "server/src/lib.rs:171", "OpenAI server is ready to accept requests")
    else:
        log.api_output("INFO:     Application startup complete.")


def print_shutdown(log: Log) -> None:
    """What a SIGTERM leaves in the log of a server that was ready."""
    for level, origin, text in (
        ("INFO", "launcher.py:254", "[shutdown] API server: shutdown triggered"),
        ("INFO", "launcher.py:270", "[shutdown] API server: stopping engine client mode=abort timeout=0s"),
        ("INFO", "core_client.py:770", "[shutdown] MPClient: start timeout=0s"),
        ("INFO", "core_client.py:772", "[shutdown] MPClient: stopping engine manager"),
        ("INFO", "utils.py:628", f"[shutdown] Process manager: send sigterm to process {log.engine_name}"),
    ):
        log.api(level, origin, text)
    log.engine("INFO", "core.py:1454", "[shutdown] EngineCore: trigger received signal=SIGTERM")
    log.engine("INFO", "core.py:1499", "[shutdown] EngineCore: exiting busy loop")
    log.api("INFO", "core_client.py:774", "[shutdown] MPClient: engine manager stopped")
    log.api("INFO", "core_client.py:777", "[shutdown] MPClient: complete")
    log.api("INFO", "launcher.py:279", "[shutdown] API server: engine client stopped")
    log.api("INFO", "launcher.py:282", "[shutdown] API server: signalling HTTP server shutdown")
    log.api("INFO", "launcher.py:304", "[shutdown] API server: shutting down FastAPI HTTP server")


def print_http_end(log: Log, finished: bool) -> None:
    """uvicorn's last lines; after a signal vLLM ends before uvicorn can say that its process finished."""
    if log.rust_frontend:
        return
    for line in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
        log.api_output(f"INFO:     {line}")
    if finished:
        log.api_output(f"INFO:     Finished server process [{log.pid}]")
