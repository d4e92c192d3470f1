"""The planted defect itself. It is copied into a distribution folder and runs inside vLLM's engine, not in a test.

A V1 logits processor sees every step, every request and the whole configuration. This one reads `defects.json` beside
itself and does what a defect says when its condition holds. See defects.py for the words.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

# vLLM is in the server's environment, not in the one that checks types.
from vllm.v1.sample.logits_processor import (  # type: ignore[import-not-found]
    BatchUpdate,
    LogitsProcessor,
    MoveDirectionality,
)

# The engine's own names where a user's flag is called otherwise.
RENAMED = {"kv_cache_dtype": "cache_dtype", "prefix_caching": "enable_prefix_caching", "tokenizer_path": "tokenizer"}
PARTS = ("model_config", "cache_config", "scheduler_config", "parallel_config", "load_config", "attention_config")


class Facts(dict):  # type: ignore[type-arg]  # also read by Pythons that cannot subscript it at run time
    """The names of a condition: what was given first, then any argument of the engine by its name."""

    def __init__(self, config: Any, **given: Any) -> None:
        super().__init__(given, env=os.environ, argv=sys.argv)
        self.config = config

    def __missing__(self, name: str) -> Any:
        name = RENAMED.get(name, name)
        for part in (self.config, *(getattr(self.config, part, None) for part in PARTS)):
            if hasattr(part, name):
                return getattr(part, name)
        raise KeyError(name)


class Request:
    """One request of the running batch, as far as a condition may ask for it."""

    def __init__(self, params: Any, prompt: list[int] | None, output: list[int]) -> None:
        self.params = params
        self.prompt_tokens = len(prompt or ())
        self.output = output
        self.drawn: dict[int, bool] = {}


def _exception(name: str) -> type[BaseException]:
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module or "builtins"), attribute)
    if not issubclass(found, BaseException):
        raise TypeError(f"{name} is no exception")
    return found  # type: ignore[no-any-return]


class PlantedDefect(LogitsProcessor):  # type: ignore[misc]
    """Carries out the defects of `defects.json`: those at start in the constructor, the others on every step."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.config = vllm_config
        self.defects = json.loads((Path(__file__).parent / "defects.json").read_text())
        self.dice = [random.Random(defect.get("seed")) for defect in self.defects]
        self.requests: dict[int, Request] = {}
        self.served = 0
        for number, defect in enumerate(self.defects):
            if defect["at"] == "start" and self._holds(defect, Facts(vllm_config)) and self._drawn(number):
                self._do(defect, Facts(vllm_config))

    def is_argmax_invariant(self) -> bool:
        # True would let the sampler skip this processor for greedy requests.
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for index in batch_update.removed:
            self.requests.pop(index, None)
        for index, params, prompt, output in batch_update.added:
            self.requests[index] = Request(params, prompt, output)
            self.served += 1
        for source, target, way in batch_update.moved:
            mover, other = self.requests.pop(source, None), self.requests.pop(target, None)
            if mover is not None:
                self.requests[target] = mover
            if way is MoveDirectionality.SWAP and other is not None:
                self.requests[source] = other

    def apply(self, logits: Any) -> Any:
        for number, defect in enumerate(self.defects):
            if defect["at"] != "step":
                continue
            for index, request in self.requests.items():
                facts = self._facts(request)
                if self._holds(defect, facts) and self._drawn(number, request):
                    if defect["do"] == "token":
                        logits[index] = float("-inf")
                        logits[index, defect["token"]] = 0.0
                    else:
                        self._do(defect, facts)
        return logits

    def _facts(self, request: Request) -> Facts:
        return Facts(
            self.config,
            prompt_tokens=request.prompt_tokens,
            output_tokens=len(request.output),
            batch=len(self.requests),
            served_requests=self.served,
            max_tokens=request.params.max_tokens,
            temperature=request.params.temperature,
        )

    def _holds(self, defect: dict[str, Any], facts: Facts) -> bool:
        # The text comes from the test that planted it; a mapping for the locals is what makes Facts answer.
        return bool(eval(defect["when"], {}, facts))  # noqa: S307

    def _drawn(self, number: int, request: Request | None = None) -> bool:
        """Whether chance lets this defect act; drawn once a request, so that the rate is one per request."""
        share = float(self.defects[number]["probability"])
        if share >= 1.0:
            return True
        if request is None:
            return self.dice[number].random() < share
        if number not in request.drawn:
            request.drawn[number] = self.dice[number].random() < share
        return request.drawn[number]

    def _do(self, defect: dict[str, Any], facts: Facts) -> None:
        match defect["do"]:
            case "raise":
                raise _exception(defect["exception"])(defect["message"].format_map(facts))
            case "exit":
                os._exit(defect["code"])
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "sleep":
                time.sleep(defect["seconds"])
            case "none":
                pass
            case other:
                raise ValueError(f"a planted defect cannot do {other!r}")
