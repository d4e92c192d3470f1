"""The failures that record.py records: how each is brought about and what is right about its log.

The choice: a table. Labels follow the rules of the project's labelled logs: the stage is the area to be put right, the
root line the earliest that states the fault. `root` is a part of that line which no other line before it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.real.bed.defects import Defect

MODEL_LENGTH = 1024
API_PORT = 8271
MASTER_PORT = 29777


@dataclass(frozen=True)
class Case:
    """One launch. `model` is tiny, a damage of damaged.py, or a path or name as vLLM should see it.

    `then` names what happens to a server that became ready (record.py's AFTER); empty means that it never does.
    `prefix` is put before the program; `listen` is a port that somebody else holds; `hang` seconds after which a launch
    that neither ends nor becomes ready is killed. `alt` are stage/family pairs that are fair as well. `site` are files
    that lie before everything else on the server's path of modules.
    """

    slug: str
    stage: str
    family: str | None
    root: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    model: str = "tiny"
    then: str = ""
    prefix: tuple[str, ...] = ()
    defects: tuple[Defect, ...] = ()
    listen: int | None = None
    hang: float = 150.0
    alt: tuple[str, ...] = ()
    site: Mapping[str, str] = field(default_factory=dict)


WORKERS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_CPU_OMP_THREADS_BIND": "0|1"}
# Root without the right to read what file modes forbid.
UNPRIVILEGED = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all")
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

CONFIGURATION = (
    Case("unknown-flag", "engine_init", "arg_error", "unrecognized arguments: --no-such-flag", ("--no-such-flag",)),
    Case("bad-dtype", "engine_init", "arg_error", "argument --dtype: invalid choice: 'bf17'", ("--dtype", "bf17")),
    Case(
        *("device-cuda", "engine_init", "arg_error", "ambiguous option: --device could match"),
        args=("--device", "cuda"),
        alt=("device_recognition/arg_error",),
    ),
    Case(
        *("max-model-len-too-long", "engine_init", "config_invalid", "User-specified max_model_len (8192) is greater"),
        args=("--max-model-len", "8192"),
        alt=("engine_init/arg_error",),
    ),
    Case(
        *(
            "batched-tokens-below-length",
            "engine_init",
            "config_invalid",
            "max_num_batched_tokens (512) is smaller",
        ),
        args=("--no-enable-chunked-prefill", "--max-num-batched-tokens", "512"),
        alt=("engine_init/arg_error",),
    ),
    Case(
        *(
            "tensor-parallel-not-dividing",
            "engine_init",
            "config_invalid",
            "divisible by tensor parallel size (3)",
        ),
        args=("--tensor-parallel-size", "3"),
        alt=("engine_init/arg_error",),
    ),
    Case(
        *("awq-without-checkpoint", "engine_init", "config_invalid", "Cannot find the config file for awq"),
        args=("--quantization", "awq"),
        alt=("engine_init/arg_error", "weight_access/config_invalid", "weight_access/weights_missing"),
    ),
    Case(
        *("attention-backend-unknown", "engine_init", "config_invalid", "Unknown attention backend: 'NOPE'"),
        args=("--attention-backend", "NOPE"),
        alt=("engine_init/arg_error",),
    ),
    Case(
        *("tool-parser-unknown", "engine_init", "arg_error", "invalid tool call parser: nope"),
        args=("--enable-auto-tool-choice", "--tool-call-parser", "nope"),
        alt=("api_ready/arg_error", "engine_init/tool_parser", "engine_init/config_invalid", "api_ready/tool_parser"),
    ),
    Case(
        *(
            "model-directory-missing",
            "weight_access",
            "weights_missing",
            "Repo id must be in the form",
        ),
        model="/models/does-not-exist",
        alt=("weight_access/config_invalid", "weight_access/arg_error"),
    ),
    Case(
        *("model-directory-empty", "weight_access", "weights_missing", "Invalid repository ID or local directory"),
        model="empty_directory",
        alt=("weight_access/config_invalid",),
    ),
    Case(
        *("config-missing", "weight_access", "weights_missing", "Invalid repository ID or local directory"),
        model="missing_config",
        alt=("weight_access/config_invalid",),
    ),
    Case(
        *("config-not-json", "weight_access", "config_invalid", "json.decoder.JSONDecodeError:"),
        model="config_not_json",
        alt=("weight_access/weights_corrupt",),
    ),
    Case("weights-header-cut", "weight_access", "weights_corrupt", "header too small", model="header_cut"),
    Case(
        *("model-type-unknown", "engine_init", "unsupported_arch", "`kimi_k9` but Transformers does not recognize"),
        model="unknown_model_type",
        alt=("weight_access/unsupported_arch",),
    ),
    Case(
        *("architecture-unknown", "engine_init", "unsupported_arch", "['KimiK9ForCausalLM'] are not supported for now"),
        model="unknown_architecture",
        alt=("weight_access/unsupported_arch",),
    ),
    Case(
        *("hub-name-offline", "weight_access", "hub_unreachable", "outgoing traffic has been disabled"),
        model="Qwen/Qwen3-0.6B",
        alt=("weight_access/weights_missing",),
    ),
    Case(
        *("api-port-taken", "api_ready", "port_in_use", "[Errno 98] Address already in use"),
        listen=API_PORT,
    ),
    Case(
        *("host-not-local", "api_ready", "config_invalid", "[Errno 99] Cannot assign requested address"),
        args=("--host", "203.0.113.9"),
        alt=("api_ready/other", "api_ready/port_in_use", "api_ready/arg_error"),
    ),
    Case(
        *("chat-template-missing", "api_ready", "config_invalid", "The supplied chat template"),
        args=("--chat-template", "/srv/templates/nope.jinja"),
        alt=("api_ready/other", "api_ready/arg_error"),
    ),
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

SETTINGS = (
    Case(
        *("memory-share-above-one", "engine_init", "config_invalid", "less than or equal to 1"),
        args=("--gpu-memory-utilization", "1.5"),
        alt=("engine_init/arg_error",),
    ),
    Case(
        *("json-flag-broken", "engine_init", "arg_error", "argument --kv-transfer-config"),
        args=("--kv-transfer-config", "{kv_connector"),
        alt=("engine_init/config_invalid",),
    ),
    Case(
        *("reasoning-parser-unknown", "engine_init", "arg_error", "invalid reasoning parser: nope"),
        args=("--reasoning-parser", "nope"),
        alt=("api_ready/arg_error", "engine_init/config_invalid", "api_ready/tool_parser", "engine_init/tool_parser"),
    ),
    Case(
        *("load-format-unknown", "engine_init", "config_invalid", "nope"),
        args=("--load-format", "nope"),
        alt=("engine_init/arg_error", "weight_access/config_invalid", "weight_access/arg_error"),
    ),
    Case(
        *("draft-model-missing", "weight_access", "weights_missing", "Repo id must be in the form"),
        args=("--speculative-config", '{"model": "/models/no-draft", "num_speculative_tokens": 2}'),
        alt=("weight_access/config_invalid", "engine_init/config_invalid"),
    ),
    Case(
        *("tokenizer-path-missing", "weight_access", "weights_missing", "/models/no-tokenizer"),
        args=("--tokenizer", "/models/no-tokenizer"),
        alt=("weight_access/config_invalid", "api_ready/weights_missing"),
    ),
    Case(
        *("lora-directory-missing", "weight_access", "weights_missing", "/models/no-lora"),
        args=("--enable-lora", "--lora-modules", "one=/models/no-lora"),
        alt=("weight_access/config_invalid", "api_ready/weights_missing", "api_ready/config_invalid"),
    ),
    Case(
        *("kv-space-not-a-number", "engine_init", "config_invalid", "invalid literal for int()"),
        env={"VLLM_CPU_KVCACHE_SPACE": "4G"},
        alt=("engine_init/arg_error", "engine_init/other"),
    ),
    Case(
        *("config-file-missing", "engine_init", "config_invalid", "/srv/nope.yaml"),
        args=("--config", "/srv/nope.yaml"),
        alt=("engine_init/arg_error", "engine_init/other"),
    ),
    Case(
        *("hub-without-network", "weight_access", "hub_unreachable", "thrown while requesting HEAD"),
        model="Qwen/Qwen3-0.6B",
        env={"HF_HUB_OFFLINE": ""},
        prefix=("unshare", "--net"),
    ),
    Case(
        *("module-missing", "container_init", "import_error", "No module named 'libcodec_of_another_build'"),
        site={"transformers/__init__.py": "import libcodec_of_another_build\n"},
    ),
    Case(
        *("no-platform", "device_recognition", "cuda_init", "Failed to infer device type"),
        site={"vllm-0.32.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0\n"},
        alt=("device_recognition/other", "device_recognition/import_error", "device_recognition/driver_mismatch"),
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
)

CASES = (*CONFIGURATION, *ENGINE, *SETTINGS, *SERVING, *DEVICE_AND_GROUP)
