"""Data: how the logs of older vLLM versions differ from 0.32's, which `startup_log` and `failure_log` are written in.

A line of 0.32 is known by its origin (`core.py:133`); a version's table says what became of it. So a version is one
table of differences, and a line that no table names was printed alike everywhere. Sources: runs of 0.9.0.1, 0.11.0,
0.15.1, 0.27.1 and 0.32.0 on CPU, and public logs. Line numbers of lines that no run printed (graphs, NCCL) are near
the real ones, not exact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

VARIABLE = "REPRO_SIMULATOR_VERSION"


@dataclass(frozen=True)
class Change:
    """What a version prints in place of one of 0.32's lines. `edits` are regular expressions and what replaces them;
    `text`, which may name {model}, replaces the whole message.
    """

    origin: str
    text: str | None = None
    edits: tuple[tuple[str, str], ...] = ()
    level: str | None = None

    def applied(self, text: str, model: str) -> str:
        """The message in this version's words."""
        if self.text is not None:
            return self.text.replace("{model}", model)
        for pattern, new in self.edits:
            text = re.sub(pattern, new, text)
        return text


@dataclass(frozen=True)
class Dialect:
    """One version's habits.

    `prefixed`: API server and engine name themselves before their log lines. `wrapped`: before everything that they
    print, uvicorn's lines, bars and tracebacks too. `worker_first` is a worker's prefix until its ranks are known ("":
    none), `worker_named` whether it then becomes Worker_TP0. `changes`: by 0.32's origin; None is a line not printed.
    """

    version: str
    engine_name: str
    prefixed: bool = True
    wrapped: bool = False
    colour: bool = False
    worker_first: str = "Worker"
    worker_named: bool = True
    logo: bool = True
    rust: bool = False
    cache_on_two_lines: bool = False
    changes: Mapping[str, Change | None] = field(default_factory=dict)

    def engine_of(self, data_parallel: bool) -> str:
        """How the engine process is called."""
        return "EngineCore_DP0" if data_parallel and self.engine_name == "EngineCore" else self.engine_name

    def said(self, level: str, origin: str, text: str, model: str) -> tuple[str, str, str] | None:
        """Level, origin and message in this version; None if it prints no such line."""
        change = self.changes.get(origin, Change(origin))
        return None if change is None else (change.level or level, change.origin, change.applied(text, model))


_NO_ORDERLY_END: dict[str, Change | None] = dict.fromkeys(
    (
        *("launcher.py:254", "launcher.py:270", "launcher.py:279", "launcher.py:282"),
        *("core_client.py:770", "core_client.py:772", "core_client.py:774", "core_client.py:775", "core_client.py:777"),
        *("utils.py:628", "utils.py:648", "utils.py:653", "core.py:1454", "core.py:1499"),
        *("multiproc_executor.py:479", "multiproc_executor.py:486", "multiproc_executor.py:153", "gpu_worker.py:518"),
    )
)
_SECONDS = ((r" s$", " seconds"),)
_NO_MEMORY_WORD = ((" GiB memory and", " GiB and"),)
_DIED = "Engine core proc {name} died unexpectedly, shutting down client."

_V15: dict[str, Change | None] = {
    **_NO_ORDERLY_END,
    "api_utils.py:347": Change("utils.py:325"),
    "api_utils.py:286": Change("utils.py:261"),
    "model.py:733": Change("model.py:541"),
    "model.py:2152": Change("model.py:1561"),
    "scheduler.py:307": Change("scheduler.py:226"),
    "vllm.py:1703": Change("vllm.py:662", "Enforce eager set, overriding optimization level to -O0"),
    "core.py:133": Change("core.py:96"),
    "parallel_state.py:1906": Change("parallel_state.py:1212"),
    "pynccl.py:148": Change("pynccl.py:111", "vLLM is using nccl==2.27.5"),
    "parallel_state.py:2350": Change(
        "parallel_state.py:1423", edits=((r", ETP rank \d+", ""), (", EPLB rank N/A", ""))
    ),
    "model_runner.py:392": Change("gpu_model_runner.py:4021", "Starting to load model {model}..."),
    "default_loader.py:501": Change("default_loader.py:291"),
    "model_runner.py:425": Change("gpu_model_runner.py:4118"),
    "cuda.py:507": Change("cuda.py:351"),
    "backends.py:1101": Change("backends.py:812"),
    "gpu_worker.py:760": Change("gpu_worker.py:355"),
    "kv_cache_utils.py:2327": Change("kv_cache_utils.py:1307"),
    "kv_cache_utils.py:2328": Change("kv_cache_utils.py:1312"),
    "model_runner.py:1127": Change("gpu_model_runner.py:5051"),
    "core.py:402": Change("core.py:272", edits=_SECONDS),
    "entry.py:136": Change("api_server.py:665"),
    "entry.py:140": Change("api_server.py:946", edits=(("vLLM server on", "vLLM API server 0 on"),)),
    "launcher.py:186": Change("launcher.py:38"),
    "launcher.py:195": Change("launcher.py:46"),
    "launcher.py:304": Change("launcher.py:110", "Shutting down FastAPI HTTP server."),
    "serve.py:224": Change("serve.py:151"),
    "multiproc_executor.py:315": Change("multiproc_executor.py:246", edits=((r" \(exit code: None\)", ""),)),
    "multiproc_executor.py:953": Change("multiproc_executor.py:772"),
    "multiproc_executor.py:1063": Change("multiproc_executor.py:852"),
    "core.py:1510": Change("core.py:946"),
    "core.py:1512": Change("core.py:948"),
    "core_client.py:817": Change("core_client.py:605", _DIED.format(name="EngineCore_DP0"), level="ERROR"),
    "async_llm.py:906": Change("async_llm.py:693"),
    "api_router.py:72": Change("serving.py:518"),
}
_V11: dict[str, Change | None] = {
    **_V15,
    "api_utils.py:347": Change("api_server.py:1839"),
    "api_utils.py:286": Change("utils.py:233"),
    "model.py:733": Change("model.py:547"),
    "model.py:2152": Change("model.py:1510"),
    "scheduler.py:307": Change("scheduler.py:205"),
    "vllm.py:1703": Change("__init__.py:381", "Cudagraph is disabled under eager mode", level="INFO"),
    "core.py:133": Change("core.py:77"),
    "parallel_state.py:1906": None,  # DEBUG until 0.12
    "pynccl.py:148": Change("pynccl.py:103", "vLLM is using nccl==2.27.3"),
    "parallel_state.py:2350": Change(
        "parallel_state.py:1208",
        edits=((", PCP rank 0", ""), (r", ETP rank \d+", ""), (", EPLB rank N/A", ""), ("EP rank N/A", "EP rank 0")),
    ),
    "model_runner.py:392": Change("gpu_model_runner.py:2602", "Starting to load model {model}..."),
    "default_loader.py:501": Change("default_loader.py:267"),
    "model_runner.py:425": Change("gpu_model_runner.py:2653", edits=_NO_MEMORY_WORD),
    "cuda.py:507": Change("cuda.py:366", "Using Flash Attention backend on V1 engine."),
    "backends.py:1101": Change("backends.py:559"),
    "gpu_worker.py:760": Change("gpu_worker.py:298"),
    "kv_cache_utils.py:2327": Change("kv_cache_utils.py:1087"),
    "kv_cache_utils.py:2328": Change("kv_cache_utils.py:1091"),
    "model_runner.py:1127": Change("gpu_model_runner.py:3480"),
    "core.py:402": Change("core.py:210", edits=_SECONDS),
    "entry.py:136": Change("api_server.py:1634", edits=(("Supported tasks", "Supported_tasks"),)),
    "entry.py:140": Change("api_server.py:1912", edits=(("vLLM server on", "vLLM API server 0 on"),)),
    "launcher.py:186": Change("launcher.py:34"),
    "launcher.py:195": Change("launcher.py:42"),
    "multiproc_executor.py:953": Change("multiproc_executor.py:597"),
    "multiproc_executor.py:1063": Change("multiproc_executor.py:671"),
    "core.py:1510": Change("core.py:708"),
    "core.py:1512": Change("core.py:710"),
    "core_client.py:817": Change("core_client.py:564", _DIED.format(name="EngineCore_DP0"), level="ERROR"),
    "async_llm.py:906": Change("async_llm.py:480"),
    "api_router.py:72": Change("serving_chat.py:1145"),
}
_V9: dict[str, Change | None] = {
    **_V11,
    "api_utils.py:347": Change("api_server.py:1287"),
    "api_utils.py:286": Change("cli_args.py:300"),
    "model.py:733": Change(
        "config.py:793",
        "This model supports multiple tasks: {'classify', 'embed', 'generate', 'reward', 'score'}. "
        "Defaulting to 'generate'.",
    ),
    "model.py:2152": None,
    "scheduler.py:307": Change("config.py:2118"),
    "vllm.py:1703": None,
    "core.py:133": Change("core.py:65"),
    "pynccl.py:148": Change("pynccl.py:69", "vLLM is using nccl==2.26.2"),
    "model_runner.py:392": Change("gpu_model_runner.py:1531", "Starting to load model {model}..."),
    "default_loader.py:501": Change("default_loader.py:280"),
    "model_runner.py:425": Change("gpu_model_runner.py:1549", edits=_NO_MEMORY_WORD),
    "cuda.py:507": Change("cuda.py:217", "Using Flash Attention backend on V1 engine."),
    "backends.py:1101": Change("backends.py:459"),
    "gpu_worker.py:760": None,
    "kv_cache_utils.py:2327": Change("kv_cache_utils.py:637"),
    "kv_cache_utils.py:2328": Change("kv_cache_utils.py:640"),
    "model_runner.py:1127": Change("gpu_model_runner.py:1933"),
    "core.py:402": Change("core.py:167", edits=_SECONDS),
    "entry.py:136": None,
    "entry.py:140": Change("api_server.py:1336", edits=(("vLLM server on", "vLLM API server on"),)),
    "launcher.py:186": Change("launcher.py:28"),
    "launcher.py:195": Change("launcher.py:36"),
    "launcher.py:304": Change("launcher.py:79", "Shutting down FastAPI HTTP server."),
    "multiproc_executor.py:953": Change("multiproc_executor.py:461"),
    "multiproc_executor.py:1063": Change("multiproc_executor.py:522"),
    "core.py:1510": Change("core.py:387"),
    "core.py:1512": Change("core.py:389"),
    "core_client.py:817": Change("core_client.py:430", _DIED.format(name="EngineCore_0"), level="ERROR"),
    "async_llm.py:906": Change("async_llm.py:403"),
    "api_router.py:72": Change("serving_chat.py:884"),
}

DIALECTS: dict[str, Dialect] = {
    "0.9": Dialect(
        "0.9.0.1",
        "EngineCore_0",
        prefixed=False,
        worker_first="VllmWorker rank={rank}",
        worker_named=False,
        logo=False,
        cache_on_two_lines=True,
        changes=_V9,
    ),
    "0.11": Dialect(
        "0.11.0",
        "EngineCore_DP0",
        wrapped=True,
        colour=True,
        worker_first="",
        logo=False,
        cache_on_two_lines=True,
        changes=_V11,
    ),
    "0.15": Dialect(
        "0.15.1", "EngineCore_DP0", wrapped=True, colour=True, worker_first="", cache_on_two_lines=True, changes=_V15
    ),
    "0.27": Dialect("0.27.1", "EngineCore", wrapped=True, rust=True),
    "0.32": Dialect("0.32.0", "EngineCore", rust=True),
}
NEWEST = DIALECTS["0.32"]


def dialect_of(environment: Mapping[str, str]) -> Dialect:
    """The version that the environment asks for, 0.32 by default; ValueError with a message for the user."""
    asked = environment.get(VARIABLE) or "0.32"
    if asked not in DIALECTS:
        raise ValueError(f"{VARIABLE}={asked!r}: must be one of {', '.join(DIALECTS)}")
    return DIALECTS[asked]
