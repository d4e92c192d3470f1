"""Flags that vLLM 0.32 no longer has but older versions had: one line a flag, with the last version where it is
known.

A command kept since an older version often fails on one of these ("unrecognized arguments"), so they are told apart
from typos. Versions are those of vLLM's own deprecation notes and release notes; an empty one means: not known.
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
    _old("--num-scheduler-steps", VALUE, ORDINAL, since="0.6", until="0.10"),
    _old("--multi-step-stream-outputs", BOOLEAN, since="0.6", until="0.10"),
    _old("--num-lookahead-slots", VALUE, ORDINAL, until="0.12"),
    _old("--scheduler-delay-factor", VALUE),
    _old("--delay-factor", VALUE),
    _old("--preemption-mode", VALUE),
    _old("--max-num-partial-prefills", VALUE, ORDINAL, since="0.7"),
    _old("--max-long-partial-prefills", VALUE, ORDINAL, since="0.7"),
    _old("--disable-async-output-proc", SWITCH, since="0.6"),
    _old("--use-v2-block-manager", SWITCH, since="0.4", until="0.8"),
    _old("--max-paddings", VALUE, ORDINAL, until="0.3"),
    _old("--swap-space", VALUE),
    _old("--max-seq-len-to-capture", VALUE, ORDINAL, until="0.11"),
    _old("--max-context-len-to-capture", VALUE, ORDINAL, until="0.5"),
    _old("--cuda-graph-sizes", SEVERAL, since="0.8"),
    _old("--full-cuda-graph", BOOLEAN, since="0.9"),
    _old("--calculate-kv-scales", BOOLEAN, since="0.7"),
    _old("--quantization-param-path", VALUE, until="0.7"),
    _old("--kv-cache-scales", VALUE),
    # Model
    _old("--task", VALUE, since="0.6"),
    _old("--device", VALUE, until="0.9"),
    _old("--rope-scaling", JSON),
    _old("--rope-theta", VALUE),
    _old("--override-neuron-config", JSON, since="0.6"),
    _old("--override-pooler-config", JSON, since="0.6"),
    _old("--override-attention-dtype", VALUE, since="0.10"),
    _old("--logits-processor-pattern", VALUE, since="0.6"),
    _old("--qlora-adapter-name-or-path", VALUE),
    _old("--use-auth-token", SWITCH),
    _old("--tokenizer-pool-size", VALUE, ORDINAL, until="0.9"),
    _old("--tokenizer-pool-type", VALUE, until="0.9"),
    _old("--tokenizer-pool-extra-config", JSON, until="0.9"),
    # Parallel
    _old("--worker-use-ray", SWITCH, LAYOUT, until="0.8"),
    _old("--engine-use-ray", SWITCH, LAYOUT, until="0.5"),
    _old("--enable-microbatching", BOOLEAN, since="0.10"),
    _old("--num-redundant-experts", VALUE, ORDINAL, since="0.9"),
    _old("--eplb-window-size", VALUE, ORDINAL, since="0.9"),
    _old("--eplb-step-interval", VALUE, ORDINAL, since="0.9"),
    _old("--eplb-log-balancedness", BOOLEAN, since="0.9"),
    _old("--enable-multimodal-encoder-data-parallel", BOOLEAN, since="0.9"),
    # Structured output and reasoning
    _old("--guided-decoding-backend", VALUE, since="0.4", until="0.11"),
    _old("--guided-decoding-disable-fallback", BOOLEAN, since="0.9", until="0.11"),
    _old("--guided-decoding-disable-any-whitespace", BOOLEAN, since="0.9", until="0.11"),
    _old("--guided-decoding-disable-additional-properties", BOOLEAN, since="0.9", until="0.11"),
    _old("--enable-reasoning", BOOLEAN, since="0.7", until="0.9"),
    # Speculative decoding before --speculative-config
    _old("--speculative-model", VALUE, until="0.8"),
    _old("--speculative-model-quantization", VALUE, until="0.8"),
    _old("--num-speculative-tokens", VALUE, ORDINAL, until="0.8"),
    _old("--speculative-draft-tensor-parallel-size -spec-draft-tp", VALUE, until="0.8"),
    _old("--speculative-max-model-len", VALUE, ORDINAL, until="0.8"),
    _old("--speculative-disable-by-batch-size", VALUE, ORDINAL, until="0.8"),
    _old("--speculative-disable-mqa-scorer", SWITCH, until="0.8"),
    _old("--ngram-prompt-lookup-max", VALUE, ORDINAL, until="0.8"),
    _old("--ngram-prompt-lookup-min", VALUE, ORDINAL, until="0.8"),
    _old("--spec-decoding-acceptance-method", VALUE, until="0.8"),
    _old("--typical-acceptance-sampler-posterior-threshold", VALUE, until="0.8"),
    _old("--typical-acceptance-sampler-posterior-alpha", VALUE, until="0.8"),
    _old("--disable-logprobs-during-spec-decoding", OPTIONAL, until="0.8"),
    # LoRA, prompt adapters
    _old("--enable-prompt-adapter", BOOLEAN, until="0.10"),
    _old("--max-prompt-adapters", VALUE, ORDINAL, until="0.10"),
    _old("--max-prompt-adapter-token", VALUE, ORDINAL, until="0.10"),
    _old("--prompt-adapters", SEVERAL, until="0.10"),
    _old("--lora-extra-vocab-size", VALUE, ORDINAL),
    _old("--long-lora-scaling-factors", SEVERAL, until="0.9"),
    _old("--enable-lora-bias", BOOLEAN, since="0.6"),
    # Images
    _old("--disable-mm-preprocessor-cache", BOOLEAN, since="0.6"),
    _old("--image-input-type", VALUE, until="0.5"),
    _old("--image-token-id", VALUE, until="0.5"),
    _old("--image-input-shape", VALUE, until="0.5"),
    _old("--image-feature-size", VALUE, until="0.5"),
    # Front end
    _old("--disable-log-requests", SWITCH, until="0.10"),
    _old("--disable-frontend-multiprocessing", SWITCH),
)
