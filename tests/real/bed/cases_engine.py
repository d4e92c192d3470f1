"""Failures of the engine, the device, the communication group and of serving."""

from __future__ import annotations

from tests.real.bed.case import MASTER_PORT, Case
from tests.real.bed.defects import Defect

# Root without the right to read what file modes forbid.
UNPRIVILEGED = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all")
WORKERS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1"}
TWO_RANKS = ("--tensor-parallel-size", "2")
NODE_0 = (
    *TWO_RANKS,
    "--nnodes",
    "2",
    "--node-rank",
    "0",
    "--master-addr",
    "127.0.0.1",
    "--master-port",
    str(MASTER_PORT),
)


ENGINE = (
    Case(
        *("kv-cache-64k", "engine_init", "kv_cache_too_small", "No available memory for the cache blocks"),
        args=("--kv-cache-memory-bytes", "65536"),
        alt=("engine_init/config_invalid",),
    ),
    Case(
        *("kv-cache-below-one-request", "engine_init", "kv_cache_too_small", "To serve at least one request with the"),
        args=("--kv-cache-memory-bytes", "1048576", "--max-model-len", "4096"),
        alt=("engine_init/config_invalid",),
    ),
    Case(
        *("kv-space-100g", "engine_init", "oom_host", "on kv cache allocation is less than requested memory for kv"),
        env={"VLLM_CPU_KVCACHE_SPACE": "100"},
        alt=("engine_init/kv_cache_too_small", "engine_init/config_invalid"),
    ),
    Case(
        *("weights-body-cut", "weight_access", "weights_corrupt", "incomplete metadata, file not fully covered"),
        model="body_cut",
    ),
    Case(
        *("shard-missing", "weight_access", "weights_missing", "Weight files referenced in index but missing"),
        model="missing_shard",
    ),
    Case("weights-absent", "weight_access", "weights_missing", "Cannot find any model weights", model="no_weights"),
    Case(
        *("checkpoint-shape-mismatch", "weight_access", "weights_corrupt", "exceeds dimension size (256)"),
        model="wrong_shape",
        alt=("engine_init/weights_corrupt", "weight_access/config_invalid", "weight_access/other"),
    ),
    Case(
        # safetensors says "No such file" for a file that may not be read: the log alone cannot tell the two apart.
        *("weights-unreadable", "weight_access", "permission", "No such file or directory: /models/tiny/model-00001"),
        model="unreadable",
        prefix=UNPRIVILEGED,
        alt=("weight_access/weights_missing",),
    ),
    Case(
        *("config-unreadable", "weight_access", "permission", "Permission denied"),
        model="unreadable_config",
        prefix=UNPRIVILEGED,
        alt=("weight_access/config_invalid", "weight_access/weights_missing"),
    ),
    Case(
        *("tokenizer-missing", "weight_access", "weights_missing", "IndexError: list index out of range"),
        model="no_tokenizer",
        alt=("api_ready/weights_missing", "api_ready/other", "weight_access/other", "weight_access/config_invalid"),
    ),
    Case(
        *("planted-start-defect", "engine_init", "other", "no workspace for 7 sequences"),
        args=("--max-num-seqs", "7"),
        defects=(Defect("max_num_seqs == 7", at="start", message="no workspace for {max_num_seqs} sequences"),),
    ),
    Case(
        *("tls-files-missing", "api_ready", "config_invalid", "FileNotFoundError: [Errno 2] No such file or directory"),
        args=("--ssl-keyfile", "/srv/tls/nope.key", "--ssl-certfile", "/srv/tls/nope.crt"),
        alt=("api_ready/other", "api_ready/arg_error"),
    ),
    Case(
        *("no-cxx-compiler", "engine_init", "kernel_compile", "InvalidCxxCompiler: No working C++ compiler found"),
        args=("--no-enforce-eager",),
        env={"CXX": "/opt/nope/g++", "VLLM_CACHE_ROOT": "{fresh}/vllm", "TORCHINDUCTOR_CACHE_DIR": "{fresh}/inductor"},
    ),
)

DEVICE_AND_GROUP = (
    Case(
        *("cores-not-there", "device_recognition", "config_invalid", "libgomp: Thread creation failed"),
        args=("--distributed-executor-backend", "mp"),
        env={"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": "40-41", "OMP_NUM_THREADS": ""},
        alt=("device_recognition/other", "engine_init/config_invalid", "device_recognition/arg_error"),
    ),
    Case(
        *("tp2-one-numa-node", "device_recognition", "config_invalid", "Not enough allowed NUMA nodes"),
        args=TWO_RANKS,
        alt=("engine_init/config_invalid", "device_recognition/other", "device_recognition/arg_error"),
    ),
    Case(
        *("gloo-interface-unknown", "comm_group", "gloo", "Unable to find address for: nope0"),
        args=TWO_RANKS,
        env={**WORKERS, "GLOO_SOCKET_IFNAME": "nope0"},
        alt=("comm_group/config_invalid",),
    ),
    Case(
        *("master-port-taken", "comm_group", "port_in_use", "EADDRINUSE"),
        args=NODE_0,
        env=WORKERS,
        listen=MASTER_PORT,
        alt=("comm_group/rendezvous_timeout", "comm_group/other"),
    ),
    Case(
        *("peer-never-comes", "comm_group", "rendezvous_timeout", "1/2 clients joined"),
        args=(*NODE_0, "--distributed-timeout-seconds", "10"),
        env=WORKERS,
        alt=("comm_group/timeout",),
    ),
    Case(
        *("peer-never-comes-hang", "comm_group", "hang", "distributed_init_method=tcp://127.0.0.1:29777 backend=gloo"),
        args=NODE_0,
        env=WORKERS,
        hang=45.0,
        alt=("comm_group/rendezvous_timeout", "comm_group/timeout"),
    ),
    Case(
        *("weights-never-delivered-hang", "weight_access", "hang", "Loading safetensors checkpoint shards:   0%"),
        model="fifo_weights",
        hang=45.0,
        alt=("weight_access/timeout", "weight_access/other"),
    ),
)

KILLED_AT_START = (
    Case(
        # Nobody says that a worker died: the first trace of it is an INFO line.
        *(
            "worker-killed-while-loading",
            "weight_access",
            "engine_dead",
            "[shutdown] Executor: waiting for worker",
        ),
        args=TWO_RANKS,
        env=WORKERS,
        model="fifo_weights",
        strike="Loading safetensors checkpoint shards:   0%",
        alt=("comm_group/engine_dead", "engine_init/engine_dead", "weight_access/gloo"),
    ),
)

SERVING = (
    Case("healthy-stopped", "none", None, "", then="answers_then_stopped"),
    Case("healthy-refused-requests", "none", None, "", then="refuses_too_long", alt=("serving/context_length",)),
    Case(
        *("planted-prompt-of-300", "serving", "other", "prompt of 300 tokens is outside the table"),
        defects=(Defect("prompt_tokens >= 300", message="prompt of {prompt_tokens} tokens is outside the table"),),
        then="crosses_300",
        alt=("serving/engine_dead",),
    ),
    Case(
        *("engine-killed", "serving", "engine_dead", "exited unexpectedly"),
        then="engine_killed",
        alt=("serving/other",),
    ),
    Case(
        *("planted-exit-in-step", "serving", "engine_dead", "exited unexpectedly"),
        defects=(Defect("output_tokens >= 8", do="exit", code=3),),
        then="asks_for_16",
        alt=("serving/other",),
    ),
    Case(
        *("tp2-worker-killed", "serving", "engine_dead", "died unexpectedly"),
        args=TWO_RANKS,
        env=WORKERS,
        then="worker_killed",
        alt=("serving/other", "serving/gloo"),
    ),
    Case(
        *("pp2-first-request", "serving", "other", "] AssertionError"),
        args=("--pipeline-parallel-size", "2"),
        env=WORKERS,
        then="first_request_fails",
        alt=("serving/engine_dead",),
    ),
    Case(
        *("tp2-step-timeout", "serving", "timeout", "RPC call to sample_tokens timed out"),
        args=TWO_RANKS,
        env={**WORKERS, "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "3"},
        defects=(Defect("prompt_tokens == 20", do="sleep", seconds=15.0),),
        then="first_request_fails",
        alt=("serving/engine_dead", "serving/hang", "serving/kernel_compile"),
    ),
)
