"""Prints a failure with all that follows from it, in the order and the processes in which vLLM prints it.

A worker's exception comes first, then the engine's, then the API server's bare traceback; each later one is only a
consequence. While serving the engine dumps its input before it names the cause, as the real one does.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import Any

from repro.domain.stage import Stage
from repro.simulator import traceback_frames as frames
from repro.simulator.arguments import ServeArguments
from repro.simulator.fault_text import TEXTS, moment_of
from repro.simulator.faults import Fault
from repro.simulator.log import Log, traceback_text
from repro.simulator.request_body import Request

ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
_WORKER_FAILED = (
    "Exception: WorkerProc initialization failed due to an exception in a background process. "
    "See stack trace for root cause."
)
_START_FAILED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
# `package.SomethingError: `, and the part of a pydantic error that a message stands in.
_NAMED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception): ")
_PYDANTIC = re.compile(r"(.*\n  Value error, ).*?( \[type=.*)", re.DOTALL)
_ENGINE_DEAD_ERROR = f"vllm.v1.engine.exceptions.EngineDeadError: {ENGINE_DEAD}"


@dataclass(frozen=True)
class Wording:
    """What the placeholders of `fault_text` stand for in this launch."""

    arguments: ServeArguments
    architecture: str
    max_model_len: int

    def fill(self, text: str, **more: Any) -> str:
        """Replace the placeholders; a text with foreign braces is left as it is."""
        values: dict[str, Any] = {
            "model": self.arguments.model,
            "architecture": self.architecture,
            "max_model_len": self.max_model_len,
            "host": self.arguments.value("host") or "127.0.0.1",
            "port": self.arguments.value("port"),
            **more,
        }
        try:
            return text.format_map(values)
        except (KeyError, ValueError, IndexError):
            return text


def root_of(fault: Fault, wording: Wording, **more: Any) -> str:
    """The exception's own lines. A `message` takes the place of the message; a name in front of it that of the name."""
    text = TEXTS[fault.family]
    serving = fault.stage is Stage.SERVING and text.serving_root
    known = text.serving_root if serving else text.root
    if fault.message is None:
        return wording.fill(known, **more)
    if _NAMED.match(fault.message):
        return fault.message
    if match := _PYDANTIC.match(known):
        return wording.fill(match[1]) + fault.message + wording.fill(match[2])
    named = _NAMED.match(known)
    return (named[0] if named else "") + fault.message


def without_name(root: str) -> str:
    """An exception's message without its name, as HTTP answers show it."""
    return _NAMED.sub("", root)


def print_start_failure(log: Log, fault: Fault, wording: Wording) -> int:
    """Print why the start fails; returns the process's exit code."""
    text = TEXTS[fault.family]
    root = root_of(fault, wording)
    moment = moment_of(fault.stage, fault.family)
    for line in text.noise + (text.debug_noise if os.environ.get("NCCL_DEBUG") else ()):
        log.bare(line)
    if text.process == "parser":
        sys.stderr.write(f"usage: vllm serve [model_tag] [options]\nvllm serve: error: {root}\n")
        sys.stderr.flush()
        return 2
    if text.process == "api" or moment in ("import", "bind", "config", "api"):
        # An import fails before the process has put its name before its output.
        write = log.bare if moment == "import" else log.api_output
        write(traceback_text((*frames.API_SERVER, *text.frames), root))
        return 1
    if log.headless:
        _print_headless_failure(log, (*frames.START_WORKER, *text.frames), root)
        return 1
    if text.process == "engine" or not log.has_workers:
        _print_engine_failure(log, (*frames.START_EXECUTOR, *text.frames), root)
    elif moment in ("device", "group", "weights"):
        trace = traceback_text((*frames.START_WORKER, *text.frames), root)
        log.worker("ERROR", "multiproc_executor.py:953", "WorkerProc failed to start.\n" + trace)
        _print_engine_failure(log, frames.WAIT_FOR_WORKERS, _WORKER_FAILED)
    else:
        _print_worker_exception(log, text.frames, root)
        _print_engine_failure(log, frames.CALL_WORKERS, _worker_failed_with(root))
    log.api_output(traceback_text(frames.START_CLIENT, _START_FAILED))
    return 1


def print_engine_death(log: Log, fault: Fault, wording: Wording, request: Request) -> None:
    """Print how the engine dies at a request, up to what the API server notices; a killed one leaves hardly a trace."""
    text = TEXTS[fault.family]
    if fault.do == "kill":
        ended = "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup"
        log.api("WARNING", "core_client.py:817", ended)
    else:
        root = root_of(fault, wording)
        inner = text.serving_frames or text.frames
        if log.has_workers and text.process == "worker":
            _print_worker_exception(log, inner, root)
            _print_dump(log, wording, request)
            fatal = traceback_text((*frames.BUSY_LOOP, *frames.WORKER_RESPONSE), _worker_failed_with(root))
        else:
            _print_dump(log, wording, request)
            fatal = traceback_text((*frames.BUSY_LOOP, *inner), root)
        log.engine("ERROR", "core.py:1512", f"EngineCore encountered a fatal error.\n{fatal}")
        if log.has_workers:
            log.engine("INFO", "multiproc_executor.py:479", "[shutdown] Executor: waiting for worker exit count=1")
    trace = traceback_text(frames.OUTPUT_HANDLER, _ENGINE_DEAD_ERROR)
    log.api("ERROR", "async_llm.py:906", f"AsyncLLM output_handler failed.\n{trace}")


def print_lost_peer(log: Log, fault: Fault, wording: Wording) -> None:
    """What a headless node prints when the node that it works for is gone, up to its end."""
    _print_worker_exception(log, frames.EXECUTE, root_of(fault, wording))
    name = f"VllmWorker-{log.local_ranks[0]}"
    died = f"Worker proc {name} died unexpectedly (exit code: None), shutting down executor."
    log.api("ERROR", "multiproc_executor.py:315", died)
    log.api("INFO", "multiproc_executor.py:479", "[shutdown] Executor: waiting for worker exit count=1")
    log.api("INFO", "multiproc_executor.py:486", "[shutdown] Executor: all workers exited gracefully")


def print_request_error(log: Log, fault: Fault, wording: Wording) -> None:
    """What a request that fails on a living server leaves in the log; a refusal (4xx) leaves nothing."""
    text = TEXTS[fault.family]
    if fault.do != "broken_tool_call" and fault.status < 500:
        return
    parser = wording.arguments.value("tool_call_parser") or "kimi_k3"
    broken = fault.do == "broken_tool_call"
    origin, head = (
        (f"{parser}_tool_parser.py:117", "Error in extracting tool call from response.")
        if broken
        else ("api_router.py:72", "Error in chat completion")
    )
    trace = traceback_text(text.serving_frames or text.frames, root_of(fault, wording))
    log.api("ERROR", origin, f"{head}\n{trace}")


def print_engine_cleanup(log: Log) -> None:
    """The API server's last lines after its engine died."""
    pid = log.engine_pid
    for level, origin, text in (
        ("INFO", "core_client.py:770", "[shutdown] MPClient: start timeout=0s"),
        ("INFO", "core_client.py:772", "[shutdown] MPClient: stopping engine manager"),
        ("INFO", "utils.py:628", f"[shutdown] Process manager: send sigterm to process {log.engine_name}"),
        ("WARNING", "utils.py:648", "[shutdown] Process manager: force killing remaining processes count=1"),
        (
            "WARNING",
            "utils.py:653",
            f"[shutdown] Process manager: force killing remaining process {log.engine_name} pid {pid}",
        ),
        ("INFO", "core_client.py:774", "[shutdown] MPClient: engine manager stopped"),
        ("INFO", "core_client.py:775", "[shutdown] MPClient: cleaning up background resources"),
        ("INFO", "core_client.py:777", "[shutdown] MPClient: complete"),
    ):
        log.api(level, origin, text)


def _print_worker_exception(log: Log, inner: tuple[frames.Frame, ...], root: str) -> None:
    trace = traceback_text((*frames.WORKER_CALL, *inner), root)
    log.worker("ERROR", "multiproc_executor.py:1063", f"WorkerProc hit an exception.\n{trace}")


def _print_headless_failure(log: Log, trace_frames: tuple[frames.Frame, ...], root: str) -> None:
    trace = traceback_text(trace_frames, root)
    log.worker("ERROR", "multiproc_executor.py:953", "WorkerProc failed to start.\n" + trace)
    log.api_output(traceback_text((*frames.API_SERVER[:3], *frames.WAIT_FOR_WORKERS[-2:]), _WORKER_FAILED))


def _print_engine_failure(log: Log, trace_frames: tuple[frames.Frame, ...], root: str) -> None:
    trace = traceback_text(trace_frames, root)
    log.engine("ERROR", "core.py:1510", f"EngineCore failed to start.\n{trace}")
    log.engine_output(f"Process {log.engine_name}:")
    log.engine_output(trace)


def _print_dump(log: Log, wording: Wording, request: Request) -> None:
    config = f"model='{wording.arguments.model}', speculative_config=None, max_seq_len={wording.max_model_len}"
    log.engine(
        "ERROR",
        "dump_input.py:72",
        f"Dumping input data for V1 LLM engine (v{log.dialect.version}) with config: {config}, "
        f"enable_prefix_caching={wording.arguments.value('enable_prefix_caching')}, ",
    )
    length = f"prompt_token_ids_len={len(request.prompt)},mm_features=[]"
    scheduler = "Dumping scheduler output for model execution: SchedulerOutput(scheduled_new_reqs=[NewRequestData("
    log.engine("ERROR", "dump_input.py:79", f"{scheduler}req_id={request.identity},{length})])")
    log.engine(
        "ERROR", "dump_input.py:81", "Dumping scheduler stats: SchedulerStats(num_running_reqs=1, num_waiting_reqs=0)"
    )


def _worker_failed_with(root: str) -> str:
    said = f"Worker failed with error '{without_name(root)}'"
    return f"RuntimeError: {said}, please check the stack trace above for the root cause"
