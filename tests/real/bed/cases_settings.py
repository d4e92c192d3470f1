"""Failures of the command line, the configuration and the model's files, most of them before the engine is built."""

from __future__ import annotations

from tests.real.bed.case import API_PORT, Case

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
        *("reasoning-parser-unknown", "engine_init", "arg_error", "Reasoning parser 'nope' not found"),
        args=("--reasoning-parser", "nope"),
        alt=("api_ready/arg_error", "engine_init/config_invalid", "api_ready/tool_parser", "engine_init/tool_parser"),
    ),
    Case(
        *("load-format-unknown", "engine_init", "config_invalid", "Load format `nope` is not supported"),
        args=("--load-format", "nope"),
        alt=("engine_init/arg_error", "weight_access/config_invalid", "weight_access/arg_error"),
    ),
    Case(
        *("draft-model-missing", "weight_access", "weights_missing", "Repo id must be in the form"),
        args=("--speculative-config", '{"model": "/models/no-draft", "num_speculative_tokens": 2}'),
        alt=("weight_access/config_invalid", "engine_init/config_invalid"),
    ),
    Case(
        *("tokenizer-path-missing", "weight_access", "weights_missing", "Repo id must be in the form"),
        args=("--tokenizer", "/models/no-tokenizer"),
        alt=("weight_access/config_invalid", "api_ready/weights_missing"),
    ),
    Case(
        *("lora-directory-missing", "weight_access", "weights_missing", "No such file or directory: '/models/no-lora/"),
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
