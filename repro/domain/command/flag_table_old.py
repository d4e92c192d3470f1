"""Flags that vLLM 0.32 no longer has but older versions had: one line a flag, with the versions that had it.

A command kept since an older version often fails on one of these ("unrecognized arguments"), so they are told apart
from typos. Versions were read from the argument parsers of one release of each minor version from 0.8.5 to 0.31; no
`since` means: already in 0.8.5.
"""

from __future__ import annotations

from repro.domain.command.flag_spec import FlagKind, FlagSpec, Trait

BOOLEAN, SWITCH, OPTIONAL = FlagKind.BOOLEAN, FlagKind.SWITCH, FlagKind.OPTIONAL
VALUE, SEVERAL, JSON = FlagKind.VALUE, FlagKind.SEVERAL, FlagKind.JSON
ORDINAL, LAYOUT = Trait.ORDINAL, Trait.LAYOUT


def _old(names: str, kind: FlagKind, traits: Trait = Trait.NONE, since: str = "", until: str = "") -> FlagSpec:
    name, *aliases = names.split()
    return FlagSpec(name, kind, tuple(aliases), traits, since, until, current=False)


OLD: tuple[FlagSpec, ...] = (
    # Engine and scheduler
    _old("--num-scheduler-steps", VALUE, ORDINAL, until="0.10"),
    _old("--multi-step-stream-outputs", BOOLEAN, until="0.10"),
    _old("--num-lookahead-slots", VALUE, ORDINAL, until="0.11"),
    _old("--scheduler-delay-factor", VALUE, until="0.10"),
    _old("--preemption-mode", VALUE, until="0.10"),
    _old("--max-num-partial-prefills", VALUE, ORDINAL, until="0.26"),
    _old("--max-long-partial-prefills", VALUE, ORDINAL, until="0.26"),
    _old("--disable-async-output-proc", SWITCH, until="0.10"),
    _old("--use-v2-block-manager", SWITCH, until="0.9"),
    _old("--swap-space", VALUE, until="0.17"),
    _old("--max-seq-len-to-capture", VALUE, ORDINAL, until="0.10"),
    _old("--cuda-graph-sizes", SEVERAL, since="0.9", until="0.12"),
    _old("--calculate-kv-scales", BOOLEAN, until="0.27"),
    # Model
    _old("--task", VALUE, until="0.12"),
    _old("--device", VALUE, until="0.9"),
    _old("--rope-scaling", JSON, until="0.11"),
    _old("--rope-theta", VALUE, until="0.11"),
    _old("--override-neuron-config", JSON, until="0.10"),
    _old("--override-pooler-config", JSON, until="0.11"),
    _old("--override-attention-dtype", VALUE, since="0.9", until="0.27"),
    _old("--logits-processor-pattern", VALUE, until="0.16"),
    _old("--qlora-adapter-name-or-path", VALUE, until="0.9"),
    _old("--tokenizer-pool-size", VALUE, ORDINAL, until="0.9"),
    _old("--tokenizer-pool-type", VALUE, until="0.9"),
    _old("--tokenizer-pool-extra-config", JSON, until="0.9"),
    # Parallel
    _old("--num-redundant-experts", VALUE, ORDINAL, since="0.9", until="0.11"),
    _old("--eplb-window-size", VALUE, ORDINAL, since="0.9", until="0.11"),
    _old("--eplb-step-interval", VALUE, ORDINAL, since="0.9", until="0.11"),
    _old("--eplb-log-balancedness", BOOLEAN, since="0.9", until="0.11"),
    _old("--enable-multimodal-encoder-data-parallel", BOOLEAN, since="0.9", until="0.12"),
    # Structured output and reasoning
    _old("--guided-decoding-backend", VALUE, until="0.11"),
    _old("--guided-decoding-disable-fallback", BOOLEAN, since="0.9", until="0.11"),
    _old("--guided-decoding-disable-any-whitespace", BOOLEAN, since="0.9", until="0.11"),
    _old("--guided-decoding-disable-additional-properties", BOOLEAN, since="0.9", until="0.11"),
    _old("--enable-reasoning", BOOLEAN, until="0.9"),
    _old("--expand-tools-even-if-tool-choice-none", SWITCH, since="0.9", until="0.9"),
    # LoRA, prompt adapters
    _old("--enable-prompt-adapter", BOOLEAN, until="0.10"),
    _old("--max-prompt-adapters", VALUE, ORDINAL, until="0.9"),
    _old("--max-prompt-adapter-token", VALUE, ORDINAL, until="0.9"),
    _old("--prompt-adapters", SEVERAL, until="0.9"),
    _old("--lora-extra-vocab-size", VALUE, ORDINAL, until="0.11"),
    _old("--long-lora-scaling-factors", SEVERAL, until="0.9"),
    _old("--enable-lora-bias", BOOLEAN, until="0.11"),
    # Images
    _old("--disable-mm-preprocessor-cache", BOOLEAN, until="0.12"),
    # Kernels, caches and pooling
    _old("--enable-bf16x3-router-gemm", BOOLEAN, since="0.26", until="0.29"),
    _old("--enable-mamba-fine-grained-prefix-cache", BOOLEAN, since="0.30", until="0.30"),
    _old("--use-gpu-for-pooling-score", BOOLEAN, since="0.17", until="0.17"),
    # Front end
    _old("--disable-log-requests", SWITCH, until="0.16"),
    _old("--disable-frontend-multiprocessing", SWITCH, until="0.18"),
    # Gone before 0.8.5
    _old("--max-paddings", VALUE, ORDINAL),
    _old("--max-context-len-to-capture", VALUE, ORDINAL),
    _old("--quantization-param-path", VALUE),
    _old("--worker-use-ray", SWITCH, LAYOUT),
    _old("--engine-use-ray", SWITCH, LAYOUT),
    _old("--speculative-model", VALUE),
    _old("--speculative-model-quantization", VALUE),
    _old("--num-speculative-tokens", VALUE, ORDINAL),
    _old("--speculative-draft-tensor-parallel-size -spec-draft-tp", VALUE),
    _old("--speculative-max-model-len", VALUE, ORDINAL),
    _old("--speculative-disable-by-batch-size", VALUE, ORDINAL),
    _old("--speculative-disable-mqa-scorer", SWITCH),
    _old("--ngram-prompt-lookup-max", VALUE, ORDINAL),
    _old("--ngram-prompt-lookup-min", VALUE, ORDINAL),
    _old("--spec-decoding-acceptance-method", VALUE),
    _old("--typical-acceptance-sampler-posterior-threshold", VALUE),
    _old("--typical-acceptance-sampler-posterior-alpha", VALUE),
    _old("--disable-logprobs-during-spec-decoding", OPTIONAL),
    _old("--image-input-type", VALUE),
    _old("--image-token-id", VALUE),
    _old("--image-input-shape", VALUE),
    _old("--image-feature-size", VALUE),
)
