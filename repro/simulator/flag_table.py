"""Data: the flags of `vllm serve` 0.32 by the kind of value they take, their short forms, choices and defaults.

The names are those of vllm/engine/arg_utils.py and vllm/entrypoints/launchers/cli_args.py of that version. A flag that
is not here is refused, as vLLM refuses it; a new vLLM flag is one word in one of the lists.
"""

from __future__ import annotations

from typing import Any

# `--x` and `--no-x`.
SWITCHES = """
    aggregate-engine-logging allow-credentials allow-deprecated-quantization async-scheduling
    cohere-is-reasoning-model cudagraph-metrics data-parallel-external-lb data-parallel-hybrid-lb
    data-parallel-multi-port-external-lb dcp-q-replicate disable-cascade-attn disable-chunked-mm-input
    disable-custom-all-reduce disable-fastapi-docs disable-hybrid-kv-cache-manager disable-log-stats
    disable-nccl-for-dp-synchronization disable-sliding-window disable-uvicorn-access-log enable-auto-tool-choice
    enable-batch-sharded-sampling enable-chunked-prefill enable-cumem-allocator enable-dbo enable-elastic-ep
    enable-ep-weight-filter enable-eplb enable-expert-parallel enable-fault-tolerance
    enable-flash-late-interaction enable-flashinfer-autotune enable-force-include-usage enable-hc-sp
    enable-layerwise-nvtx-tracing enable-log-deltas enable-log-outputs enable-log-requests
    enable-logging-iteration-details enable-lora enable-mamba-cache-stochastic-rounding
    enable-mamba-shared-prefix-checkpoint enable-mfu-metrics enable-mixed-moe-lora-format enable-mm-embeds
    enable-moe-shared-loras enable-nccl-comm-suspend enable-offline-docs enable-per-request-metrics
    enable-prefix-caching enable-prompt-embeds enable-prompt-tokens-details enable-request-id-headers
    enable-return-routed-experts enable-scale-out enable-server-load-tracking enable-shm-tensor-arena
    enable-sleep-mode enable-ssl-refresh enable-tokenizer-info-endpoint enable-tower-connector-lora
    enable-trace-replay enforce-eager exclude-tools-when-tool-choice-none fail-on-environ-validation
    fully-sharded-loras grpc headless interleave-mm-strings jit-monitor-verbose kv-cache-metrics
    kv-sharing-fast-prefill language-model-only log-error-stack long-prefill-token-threshold-adaptive
    mm-device-do-normalize mm-encoder-only numa-bind ray-workers-use-nsight return-sampling-mask
    return-tokens-as-token-ids scheduler-reserve-full-isl skip-mm-profiling skip-tokenizer-init
    sleep-mode-offload-cudagraph specialize-active-lora swa-bounded-replay tokens-only trust-remote-code
    trust-request-chat-template trust-request-mm-kwargs use-fp64-gumbel use-replayssm use-tqdm-on-load
""".split()

# One whole number.
INTEGERS = """
    api-server-count block-size cp-kv-cache-interleave-size cpu-distributed-timeout-seconds data-parallel-rank
    data-parallel-rpc-port data-parallel-size data-parallel-size-local data-parallel-start-rank
    data-parallel-supervisor-port dbo-decode-token-threshold dbo-prefill-token-threshold
    dcp-kv-cache-interleave-size decode-context-parallel-size distributed-timeout-seconds
    dp-supervisor-probe-failure-threshold dp-sync-interval elastic-ep-max-dp-size grpc-port
    long-prefill-token-threshold mamba-block-size mamba-cache-philox-rounds master-port max-cpu-loras
    max-cudagraph-capture-size max-log-len max-logprobs max-lora-cls-labels max-loras max-num-active-seqs
    max-num-queued-reqs max-num-queued-tokens max-num-seqs max-parallel-loading-workers
    mm-shm-cache-max-object-size-mb nnodes node-rank num-gpu-blocks-override offload-group-size
    offload-num-in-group offload-prefetch-step pipeline-parallel-size port prefill-context-parallel-size
    prefill-schedule-interval prefix-cache-retention-interval prefix-match-unit renderer-num-workers
    replayssm-buffer-len safetensors-prefetch-block-size safetensors-prefetch-num-threads seed shutdown-timeout
    spec-tokens sse-keep-alive-interval ssl-cert-reqs stream-interval tensor-parallel-size ubatch-size
""".split()

# One whole number that may be written 8k (thousands) or 8K (1024s).
HUMAN_INTEGERS = """
    kv-cache-memory-bytes max-model-len max-num-batched-tokens max-num-scheduled-tokens
""".split()

# One number.
NUMBERS = """
    cpu-offload-gb dp-supervisor-probe-interval-s dp-supervisor-probe-timeout-s gpu-memory-utilization
    kv-cache-metrics-sample kv-offloading-size mm-encoder-fp8-scale-save-margin mm-ipc-gpu-memory-gb
    mm-processor-cache-gb video-pruning-rate watermark
""".split()

# One or more words.
SEVERAL = """
    allowed-media-domains api-key collect-detailed-traces cudagraph-capture-sizes ignore-patterns
    kv-cache-dtype-skip-layers logits-processors lora-modules lora-target-modules middleware numa-bind-cpus
    numa-bind-nodes served-model-name
""".split()

# A JSON value, or its parts as --x.key value.
STRUCTURES = """
    additional-config allowed-headers allowed-methods allowed-origins attention-config aux-output-config
    compilation-config custom-histogram-buckets default-chat-template-kwargs default-mm-loras diffusion-config
    ec-manager-config ec-transfer-config engram-config eplb-config fault-tolerance-config ir-op-priority
    kernel-config kv-events-config kv-transfer-config limit-mm-per-prompt logging-config media-io-kwargs
    mm-processor-kwargs model-class-overrides model-loader-extra-config override-generation-config pooler-config
    profiler-config pt-load-map-location quantization-config reasoning-config speculative-config
    structured-outputs-config watermark-config weight-transfer-config
""".split()

# One word.
WORDS = """
    all2all-backend allowed-local-media-path anthropic-disabled-thinking-effort attention-backend chat-template
    chat-template-content-format code-revision cohere-format config config-format convert cpu-offload-params
    data-parallel-address data-parallel-backend dcp-comm-backend device-ids disable-access-log-for-endpoints
    distributed-executor-backend download-dir dtype expert-placement-strategy fingerprint-mode fingerprint-value
    gdn-prefill-backend generation-config hf-config-path hf-overrides hf-token host io-processor-plugin
    jit-monitor-mode kda-decode-backend kda-prefill-backend kv-cache-dtype kv-offloading-backend linear-backend
    load-format log-config-file log-level logprobs-mode lora-dtype mamba-backend mamba-cache-dtype
    mamba-cache-mode mamba-ssm-cache-dtype mamba-ssu-algorithm master-addr max-lora-rank mm-encoder-attn-backend
    mm-encoder-attn-dtype mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-path mm-encoder-tp-mode
    mm-hasher-algorithm mm-processor-cache-type mm-processor-device mm-tensor-ipc model-impl moe-backend
    offload-backend offload-params optimization-level otlp-traces-endpoint per-request-spec-decode-metrics
    performance-mode prefix-caching-hash-algo quantization reasoning-parser reasoning-parser-plugin response-role
    revision root-path runner safetensors-load-strategy scheduler-cls scheduling-policy
    show-hidden-metrics-for-version sleep-preserve-parameter-names sparse-indexer-topk-backend spec-method
    spec-model ssl-ca-certs ssl-certfile ssl-ciphers ssl-keyfile tokenizer tokenizer-mode tokenizer-revision
    tool-call-parser tool-parser-plugin tool-server tool-strict-level uds uvicorn-log-level video-pruning-method
    worker-cls worker-extension-cls
""".split()

SHORT_FORMS: dict[str, str] = {
    "-q": "quantization",
    "-pp": "pipeline-parallel-size",
    "-n": "nnodes",
    "-r": "node-rank",
    "-tp": "tensor-parallel-size",
    "-dcp": "decode-context-parallel-size",
    "-pcp": "prefill-context-parallel-size",
    "-dp": "data-parallel-size",
    "-dpn": "data-parallel-rank",
    "-dpr": "data-parallel-start-rank",
    "-dpl": "data-parallel-size-local",
    "-dpa": "data-parallel-address",
    "-dpp": "data-parallel-rpc-port",
    "-dpb": "data-parallel-backend",
    "-dph": "data-parallel-hybrid-lb",
    "-dpe": "data-parallel-external-lb",
    "-dpm": "data-parallel-multi-port-external-lb",
    "-ep": "enable-expert-parallel",
    "-asc": "api-server-count",
    "-sc": "speculative-config",
    "-dc": "diffusion-config",
    "-cc": "compilation-config",
    "-ac": "attention-config",
    "-O": "optimization-level",
}

CHOICES: dict[str, tuple[str, ...]] = {
    "dtype": ("auto", "half", "float16", "bfloat16", "float", "float32"),
    "kv-cache-dtype": (
        *("auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "nvfp4_ds_mla"),
        *("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head", "nvfp4", "nvfp4_4over6"),
    ),
    "scheduling-policy": ("fcfs", "priority"),
    "uvicorn-log-level": ("critical", "error", "warning", "info", "debug", "trace"),
    "prefix-caching-hash-algo": ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor"),
}

# What vLLM uses where the flag is absent; switches that are not here are off, other flags have no value.
DEFAULTS: dict[str, Any] = {
    "all2all_backend": "allgather_reducescatter",
    "allow_deprecated_quantization": False,
    "block_size": 16,
    "cohere_is_reasoning_model": True,
    "data_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "distributed_executor_backend": "mp",
    "dtype": "auto",
    "enable_chunked_prefill": True,
    "enable_flash_late_interaction": True,
    "enable_flashinfer_autotune": True,
    "enable_log_deltas": True,
    "enable_prefix_caching": True,
    "gpu_memory_utilization": 0.92,
    "kv_cache_dtype": "auto",
    "load_format": "auto",
    "master_addr": "127.0.0.1",
    "master_port": 29501,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 1024,
    "nnodes": 1,
    "node_rank": 0,
    "optimization_level": "2",
    "pipeline_parallel_size": 1,
    "port": 8000,
    "prefill_context_parallel_size": 1,
    "prefix_caching_hash_algo": "sha256",
    "scheduling_policy": "fcfs",
    "seed": 0,
    "stream_interval": 1,
    "tensor_parallel_size": 1,
    "use_tqdm_on_load": True,
    "uvicorn_log_level": "info",
}

TOOL_PARSERS = """
    apertus cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 dots ernie45
    functiongemma gemma4 gigachat3 glm45 glm47 granite granite4 hermes hunyuan_a13b hy_v3 hy_v4 internlm jamba
    kimi_k2 kimi_k3 lfm2 llama3_json llama4_json llama4_pythonic longcat mimo minimax_m2 minimax_m3 mistral olmo3
    openai phi4_mini_json pythonic qwen3_coder qwen3_json qwen3_xml seed_oss step3 step3p5 xlam
""".split()
