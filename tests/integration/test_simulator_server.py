"""The stand-in as a process: its start, its answers, every stage's failure, and its end."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

K3 = ["moonshotai/Kimi-K3", "-tp", "8", "--trust-remote-code", "--load-format", "fastsafetensors"]
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]
READY = "INFO:     Application startup complete."
PATIENCE_S = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Reply:
    status: int
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> str:
        return str(self.json["error"]["message"])


class Server:
    """One started stand-in; its log is read by a thread so that a full pipe never stops it."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "repro.simulator", "serve", *words]
        command += [] if "--port" in words else ["--port", str(self.port)]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("REPRO_", "NCCL_", "VLLM_"))}
        self.process = subprocess.Popen(
            command,
            env={**clean, "REPRO_SIMULATOR_STARTUP_SECONDS": "0.02", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for raw in self.process.stdout:
            with self._changed:
                self.lines.append(raw.decode().removesuffix("\n"))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait_for_line(self, text: str) -> None:
        with self._changed:
            seen = self._changed.wait_for(lambda: any(text in line for line in self.lines), PATIENCE_S)
        assert seen, f"{text!r} was not printed:\n{self.log}"

    def end(self) -> int:
        """The exit code, once the process has ended by itself and its log is whole."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def ask(self, path: str, body: Any = None, timeout: float = PATIENCE_S) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("GET" if body is None else "POST", path, data)
            answer = connection.getresponse()
            return Reply(answer.status, answer.read().decode())
        finally:
            connection.close()

    def chat(self, content: str = "hello there", **more: Any) -> Reply:
        messages = [{"role": "user", "content": content}]
        return self.ask("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 32, **more})

    def wait_for_lost_peer(self) -> None:
        """Ask until a request runs into the loss; the server notices it a moment after the peer's end."""
        deadline = time.monotonic() + PATIENCE_S
        while self.chat().status != 500:
            assert time.monotonic() < deadline, self.log

    def metric(self, name: str) -> float:
        page = self.ask("/metrics").text
        return sum(float(value) for value in re.findall(rf"^{re.escape(name)}\{{[^}}]*\}} (\S+)$", page, re.MULTILINE))


Start = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Server] = []

    def starting(words: list[str], faults: str = "", ready: bool = True, **environment: str) -> Server:
        if faults:
            file = tmp_path / f"faults{len(started)}.toml"
            file.write_text(faults, encoding="utf-8")
            environment["REPRO_SIMULATOR_FAULTS"] = str(file)
        server = Server(words, environment)
        started.append(server)
        if ready:
            server.wait_for_line(READY)
        return server

    yield starting
    for server in started:
        server.stop()


def fault(stage: str, family: str, when: str = "true", **more: Any) -> str:
    rest = "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    return f"[[fault]]\nstage = {stage!r}\nfamily = {family!r}\nwhen = {json.dumps(when)}\n{rest}"


def events(reply: Reply) -> list[Any]:
    blocks = [block.removeprefix("data: ") for block in reply.text.split("\n\n") if block]
    assert blocks[-1] == "[DONE]"
    return [json.loads(block) for block in blocks[:-1]]


# Start


def test_a_start_prints_vllms_lines_in_vllms_order(start: Start) -> None:
    server = start([*K3, "--max-model-len", "131072"])
    wanted = [
        r"^\(APIServer pid=\d+\) INFO \d\d-\d\d \d\d:\d\d:\d\d \[api_utils\.py:286\] non-default args: \{'model_tag'",
        r"^\(APIServer pid=\d+\) INFO .* Resolved architecture: KimiK3ForConditionalGeneration",
        r"Using max model len 131072",
        r"^\(EngineCore pid=\d+\) INFO .* Initializing a V1 LLM engine \(v0\.32\.0\)",
        r"^\(Worker pid=\d+\) INFO .* world_size=8 rank=0 local_rank=0 .* backend=nccl",
        r"vLLM is using nccl==",
        r"^\(Worker pid=\d+\) INFO .* rank 7 in world size 8 is assigned as",
        r"^\(Worker_TP0 pid=\d+\) INFO .* Loading model from scratch",
        r"^Loading fastsafetensors checkpoint shards: 100% Completed \| 96/96",
        r"^\(Worker_TP7 pid=\d+\) INFO .* Model loading took",
        r"GPU KV cache size: [\d,]+ tokens",
        r"Graph capturing finished",
        r"init engine \(profile, create kv cache, warmup model\) took",
        r"Supported tasks: \['generate'\]",
        r"Starting vLLM server on http://",
        r"^INFO:     Started server process \[\d+\]$",
        r"^INFO:     Application startup complete\.$",
    ]
    places = [next((n for n, line in enumerate(server.lines) if re.search(p, line)), None) for p in wanted]
    assert None not in places, wanted[places.index(None)]
    assert places == sorted(places, key=lambda place: place or 0)


def test_one_gpu_has_no_worker_processes(start: Start) -> None:
    server = start(["tiny", "--enforce-eager"])
    assert "(Worker" not in server.log
    assert re.search(r"\(EngineCore pid=\d+\) INFO .* world_size=1 rank=0", server.log)
    assert "CUDA graphs" not in server.log


def test_it_serves_on_loopback_only(start: Start) -> None:
    server = start(["tiny", "--host", "0.0.0.0"])
    assert "is served on 127.0.0.1 only" in server.log
    assert server.ask("/health").status == 200
    refused = start(["tiny", "--host", "192.0.2.1"], ready=False)
    assert refused.end() == 2
    assert "is not this machine's loopback" in refused.log


def test_a_slow_start_becomes_ready_and_slow_answers_come(start: Start) -> None:
    slow: dict[str, Any] = {"do": "slow", "delay_s": 0.05}
    faults = fault("engine_init", "other", **slow) + fault("serving", "other", **slow)
    assert start(["tiny"], faults).chat().status == 200


def two_nodes(rank: int, port: int) -> list[str]:
    meeting = ["--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1", "--master-port", str(port)]
    return [*K3, *meeting, *(["--headless"] if rank else [])]


def test_two_nodes_meet_and_only_rank_0_serves(start: Start) -> None:
    port = free_port()
    second = start(two_nodes(1, port), ready=False)
    second.wait_for_line("world_size=8 rank=7 local_rank=3")
    assert "is assigned as" not in second.log
    first = start(two_nodes(0, port))
    second.wait_for_line("Available KV cache memory")
    assert f"headless multiproc executor, with head node address 127.0.0.1:{port}" in second.log
    assert "(Worker_TP4 pid=" in second.log
    assert not {"(APIServer", "(EngineCore", "(Worker_TP0"} & {line.split(" ")[0] for line in second.lines}
    with pytest.raises(ConnectionRefusedError):
        second.ask("/health")
    assert first.chat().status == 200
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == 0
    assert second.process.poll() is None
    second.process.send_signal(signal.SIGTERM)
    assert second.end() == 0
    assert "ERROR" not in first.log + second.log


def test_a_killed_second_node_is_noticed_at_the_next_request(start: Start) -> None:
    port = free_port()
    second, first = start(two_nodes(1, port), ready=False), start(two_nodes(0, port))
    second.process.kill()
    second.end()
    first.wait_for_lost_peer()
    assert first.end() == 0
    assert re.search(
        r"^\(Worker_TP0 .* RuntimeError: .*Connection closed by peer \[127\.0\.0\.1\]:\d+", first.log, re.M
    )


def test_a_killed_first_node_ends_the_second(start: Start) -> None:
    port = free_port()
    second, first = start(two_nodes(1, port), ready=False), start(two_nodes(0, port))
    second.wait_for_line("Available KV cache memory")
    first.process.kill()
    assert second.end() == 0
    assert re.search(r"^\(Worker_TP4 .* RuntimeError: .*Connection closed by peer", second.log, re.M)
    assert "(MainProcess" in second.lines[-1]


def test_a_fault_of_one_rank_shows_in_its_log_and_the_other_loses_a_peer(start: Start) -> None:
    port = free_port()
    faults = fault("weight_access", "weights_missing", "node_rank == 1")
    second = start(two_nodes(1, port), faults, ready=False)
    first = start(two_nodes(0, port), faults, ready=False)
    assert (first.end(), second.end()) == (1, 1)
    assert "Cannot find any model weights" in second.log
    assert "Cannot find any model weights" not in first.log
    assert "Connection closed by peer" in first.log


def test_a_peer_that_does_not_come_and_a_master_port_that_is_taken(start: Start) -> None:
    lonely = start([*two_nodes(0, free_port()), "--distributed-timeout-seconds", "1"], ready=False)
    assert lonely.end() == 1
    assert "DistStoreError: Timed out after 2 seconds waiting for clients. 1/2 clients joined." in lonely.log
    with socket.socket() as taker:
        taker.bind(("127.0.0.1", 0))
        taker.listen()
        refused = start(two_nodes(0, taker.getsockname()[1]), ready=False)
        assert refused.end() == 1
    assert "name: EADDRINUSE, message: address already in use" in refused.log


def test_a_rust_front_end_serves_without_uvicorns_lines(start: Start) -> None:
    server = start(["tiny"], ready=False, VLLM_USE_RUST_FRONTEND="1")
    server.wait_for_line("OpenAI server is ready to accept requests")
    assert server.chat().status == 200
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    assert "Launching Rust frontend: " in server.log
    assert "INFO:     " not in server.log


def test_an_older_versions_log_and_number_are_chosen_by_the_environment(start: Start) -> None:
    server = start(["tiny"], REPRO_SIMULATOR_VERSION="0.11")
    assert server.ask("/version").json == {"version": "0.11.0"}
    assert "Starting vLLM API server 0 on http://" in server.log
    refused = start(["tiny"], ready=False, REPRO_SIMULATOR_VERSION="0.10")
    assert refused.end() == 2
    assert "must be one of 0.9, 0.11, 0.15, 0.27, 0.32" in refused.log


# Answers


def test_a_chat_answer_is_whole_deterministic_and_counted_as_tokenize_counts(start: Start) -> None:
    server = start(["tiny", "--max-model-len", "4096"])
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a baseline? ü"}]
    body = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 9, "ignore_eos": True}
    first, second = (server.ask("/v1/chat/completions", body).json for _ in range(2))
    assert first["choices"] == second["choices"]
    assert first["choices"][0]["finish_reason"] == "length"
    counted = server.ask("/tokenize", {"messages": messages, "add_generation_prompt": True}).json
    assert counted["max_model_len"] == 4096
    assert first["usage"]["prompt_tokens"] == counted["count"] == len(counted["tokens"])
    text = first["choices"][0]["message"]["content"]
    said = server.ask("/tokenize", {"prompt": text, "add_special_tokens": False}).json
    assert first["usage"]["completion_tokens"] == said["count"] == 9
    assert first["usage"]["total_tokens"] == counted["count"] + 9
    assert server.ask("/detokenize", {"tokens": said["tokens"]}).json == {"prompt": text}


def test_a_stream_says_what_the_whole_answer_says(start: Start) -> None:
    server = start(["tiny", "--reasoning-parser", "kimi_k3"])
    whole = server.chat().json
    parts = events(server.chat(stream=True, stream_options={"include_usage": True}))
    deltas = [part["choices"][0]["delta"] for part in parts if part["choices"]]
    message = whole["choices"][0]["message"]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == message["content"]
    assert "".join(delta.get("reasoning", "") for delta in deltas) == message["reasoning"] != ""
    assert [part["choices"][0]["finish_reason"] for part in parts if part["choices"]][-1] == "length"
    assert parts[-1]["choices"] == []
    assert parts[-1]["usage"] == whole["usage"]


def test_completions_take_text_and_token_numbers(start: Start) -> None:
    server = start(["tiny"])
    numbers = server.ask("/tokenize", {"prompt": "one two three"}).json["tokens"]
    body = {"prompt": ["one two three", "four"], "temperature": 0, "max_tokens": 5}
    several = server.ask("/v1/completions", body).json
    assert [choice["index"] for choice in several["choices"]] == [0, 1]
    single = server.ask("/v1/completions", {**body, "prompt": numbers}).json
    assert single["choices"][0]["text"] == several["choices"][0]["text"]
    assert single["usage"]["prompt_tokens"] == len(numbers)
    streamed = events(server.ask("/v1/completions", {**body, "prompt": numbers, "stream": True}))
    assert "".join(part["choices"][0]["text"] for part in streamed) == single["choices"][0]["text"]


def test_limits_are_honoured(start: Start) -> None:
    server = start(["tiny", "--max-model-len", "65536"])
    long = server.chat(max_tokens=60000, min_tokens=50000).json
    assert long["usage"]["completion_tokens"] == 50000
    assert long["choices"][0]["finish_reason"] == "stop"
    text = server.chat(max_tokens=20).json["choices"][0]["message"]["content"]
    word = text.split()[3]
    cut = server.chat(max_tokens=20, stop=[word]).json["choices"][0]
    assert cut["finish_reason"] == "stop"
    assert cut["message"]["content"] == text[: text.index(word)]
    shaped = server.chat(
        response_format={"type": "json_schema", "json_schema": {"schema": TOOLS[0]["function"]["parameters"]}}
    )
    assert set(json.loads(shaped.json["choices"][0]["message"]["content"])) == {"city", "days"}


def test_the_small_paths_answer(start: Start) -> None:
    server = start([*K3, "--served-model-name", "k3", "--max-model-len", "8K"])
    assert server.ask("/health") == Reply(200, "")
    assert server.ask("/ping").status == 200
    assert server.ask("/version").json == {"version": "0.32.0"}
    model = server.ask("/v1/models").json["data"][0]
    assert (model["id"], model["root"], model["max_model_len"]) == ("k3", "moonshotai/Kimi-K3", 8192)
    assert server.ask("/nowhere").status == 404


def test_one_connection_carries_many_requests(start: Start) -> None:
    server = start(["tiny"])
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    connection.connect()
    own = connection.sock
    for path, status in (("/health", 200), ("/nowhere", 404), ("/version", 200)):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert (answer.status, connection.sock) == (status, own)
    connection.close()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"model": "x"}, 404, "The model `x` does not exist."),
        ({"max_tokens": 1025}, 400, "max_tokens=1025 cannot be greater than max_model_len=1024"),
        ({"max_tokens": 0}, 400, "must be at least 1"),
        ({"messages": []}, 400, "messages"),
        ({"temperature": "hot"}, 400, "validation error"),
        (
            {"messages": [{"role": "user", "content": "a " * 1200}]},
            400,
            "This model's maximum context length is 1024 tokens",
        ),
        ({"messages": [{"role": "user", "content": "a" * 7000}]}, 400, "characters (more than 6144 characters"),
        (
            {"tools": TOOLS},
            400,
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        ),
        (
            {"tools": TOOLS, "tool_choice": "required"},
            400,
            'tool_choice="required" requires --tool-call-parser to be set',
        ),
    ],
)
def test_a_request_is_refused_in_vllms_words(start: Start, body: dict[str, Any], status: int, said: str) -> None:
    server = start(["tiny", "--max-model-len", "1024"])
    reply = server.chat(**body)
    assert reply.status == status
    assert said in reply.error
    assert reply.json["error"]["code"] == status
    assert server.ask("/v1/chat/completions", b"{").status == 400
    assert server.chat().status == 200


def test_tools_are_called_when_asked_for(start: Start) -> None:
    server = start(["tiny", "--enable-auto-tool-choice", "--tool-call-parser", "kimi_k3"])
    named = {"type": "function", "function": {"name": "get_weather"}}
    for choice, content in (
        ("required", "hi"),
        (named, "hi"),
        ("auto", "Please use get_weather"),
        (None, "Call a tool"),
    ):
        more = {} if choice is None else {"tool_choice": choice}
        answer = server.chat(content, tools=TOOLS, max_tokens=64, **more).json["choices"][0]
        assert answer["finish_reason"] == ("stop" if choice is named else "tool_calls")
        function = answer["message"]["tool_calls"][0]["function"]
        assert (function["name"], json.loads(function["arguments"])) == ("get_weather", {"city": "Berlin", "days": 1})
    assert server.chat("no thanks", tools=TOOLS).json["choices"][0]["message"]["tool_calls"] == []
    parts = events(server.chat("hi", tools=TOOLS, tool_choice="required", max_tokens=64, stream=True))
    calls = [call for part in parts for call in part["choices"][0]["delta"].get("tool_calls", [])]
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": "Berlin", "days": 1}
    short = server.chat("hi", tools=TOOLS, tool_choice="required", max_tokens=3).json["choices"][0]
    assert (short["finish_reason"], short["message"]["tool_calls"]) == ("length", [])


def test_the_prefix_cache_counts_in_blocks_and_by_salt(start: Start) -> None:
    server = start(["tiny", "--enable-prompt-tokens-details"])
    text = " ".join(f"w{n}" for n in range(100))
    cold, warm = (server.chat(text).json["usage"] for _ in range(2))
    assert cold["prompt_tokens_details"] == {"cached_tokens": 0}
    hits = warm["prompt_tokens_details"]["cached_tokens"]
    assert hits == (warm["prompt_tokens"] - 1) // 16 * 16 > 0
    assert server.metric("vllm:prefix_cache_queries_total") == 2 * cold["prompt_tokens"]
    assert server.metric("vllm:prefix_cache_hits_total") == server.metric("vllm:prompt_tokens_cached_total") == hits
    assert server.metric("vllm:prompt_tokens_by_source_total") == server.metric("vllm:prompt_tokens_total")
    assert server.chat(text, cache_salt="other").json["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert 'enable_prefix_caching="True"' in server.ask("/metrics").text


def test_the_prefix_cache_can_be_off(start: Start) -> None:
    server = start(["tiny", "--no-enable-prefix-caching"])
    for _ in range(2):
        assert server.chat("word " * 100).json["usage"]["prompt_tokens_details"] is None
    assert server.metric("vllm:prefix_cache_queries_total") == 0
    assert 'enable_prefix_caching="False"' in server.ask("/metrics").text


def side_by_side(server: Server, count: int) -> list[Reply]:
    replies: list[Reply] = []
    threads = [threading.Thread(target=lambda: replies.append(server.chat())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return replies


def test_sixty_four_requests_at_once_are_answered(start: Start) -> None:
    server = start(["tiny"])
    assert [reply.status for reply in side_by_side(server, 64)] == [200] * 64
    assert server.metric("vllm:num_requests_running") == 0
    assert server.metric("vllm:request_success_total") == 64


def test_a_paced_answer_can_be_seen_running(start: Start) -> None:
    server = start(["tiny"], REPRO_SIMULATOR_TOKEN_SECONDS="0.02")
    asking = threading.Thread(target=server.chat, kwargs={"stream": True, "ignore_eos": True})
    asking.start()
    seen = False
    while asking.is_alive() and not seen:
        seen = server.metric("vllm:num_requests_running") == 1 and server.metric("vllm:kv_cache_usage_perc") > 0
    asking.join(PATIENCE_S)
    assert seen
    assert server.metric("vllm:num_requests_running") == 0


# Failing while serving


def test_concurrency_is_what_comes_together(start: Start) -> None:
    server = start(["tiny"], fault("serving", "http_error", "concurrency >= 8", status=503))
    assert {reply.status for reply in side_by_side(server, 7)} == {200}
    assert {server.chat().status for _ in range(9)} == {200}
    assert {reply.status for reply in side_by_side(server, 8)} >= {503}


def test_a_crash_at_a_threshold_ends_the_server_as_vllm_ends(start: Start) -> None:
    when = "prefix_caching and input_tokens >= 300"
    server = start(K3, fault("serving", "illegal_memory_access", when))
    numbers = server.ask("/tokenize", {"prompt": "word " * 400}).json["tokens"]
    assert server.ask("/v1/completions", {"prompt": numbers[:299]}).status == 200
    reply = server.ask("/v1/completions", {"prompt": numbers[:300]})
    assert (reply.status, reply.json["error"]["type"]) == (500, "InternalServerError")
    assert reply.error == "EngineCore encountered an issue. See stack trace (above) for the root cause."
    assert server.ask("/health").status == 503
    assert server.end() == 0
    order = [
        "(Worker_TP0",
        "CUDA error: an illegal memory access was encountered",
        "Dumping input data for V1 LLM engine",
        "EngineCore encountered a fatal error.",
        "AsyncLLM output_handler failed.",
        '"POST /v1/completions HTTP/1.1" 500 Internal Server Error',
        "INFO:     Shutting down",
        "INFO:     Finished server process",
        "[shutdown] MPClient: complete",
    ]
    after = server.log[server.log.index("WorkerProc hit an exception.") - 80 :]
    places = [after.index(text) for text in order]
    assert places == sorted(places)


def test_a_dead_engine_closes_the_server_without_being_asked(start: Start) -> None:
    server = start(["tiny"], fault("serving", "engine_dead"))
    parts = events(server.chat(stream=True))
    assert parts[-1]["error"]["code"] == 500
    assert server.end() == 0
    assert "engine core exited unexpectedly" in server.log
    assert "EngineCore encountered a fatal error" not in server.log


def test_the_launch_decides_too(start: Start) -> None:
    faults = fault("serving", "oom_gpu", "flag('--kv-cache-dtype') == 'fp8' and env('NCCL_NVLS_ENABLE') == '1'")
    assert start(["tiny", "--kv-cache-dtype", "fp8"], faults).chat().status == 200
    guilty = start(["tiny", "--kv-cache-dtype", "fp8"], faults, NCCL_NVLS_ENABLE="1")
    assert guilty.chat().status == 500
    assert guilty.end() == 0
    assert "torch.OutOfMemoryError: CUDA out of memory." in guilty.log


def test_a_fault_may_wait_for_served_requests(start: Start) -> None:
    server = start(["tiny"], fault("serving", "http_error", "served_requests >= 3"))
    assert [server.chat().status for _ in range(5)] == [200, 200, 200, 500, 500]
    assert "Error in chat completion" in server.log


@pytest.mark.parametrize(
    ("do", "check"),
    [
        ("empty", lambda choice: choice["message"]["content"] == ""),
        ("leaked_markers", lambda choice: "<|close|>" in choice["message"]["content"]),
        ("endless", lambda choice: choice["finish_reason"] == "length" and "! ! ! !" in choice["message"]["content"]),
        ("broken_tool_call", lambda choice: "<|open|>tools" in choice["message"]["content"]),
    ],
)
def test_a_wrong_output_is_a_200(start: Start, do: str, check: Callable[[Any], bool]) -> None:
    server = start(["tiny"], fault("serving", "bad_output", "max_tokens > 40", do=do))
    assert not check(server.chat(max_tokens=40).json["choices"][0])
    reply = server.chat(max_tokens=41)
    assert reply.status == 200
    assert check(reply.json["choices"][0])


def test_a_context_fault_is_a_400_without_a_log_line(start: Start) -> None:
    server = start(["tiny", "--max-model-len", "2048"], fault("serving", "context_length", "input_tokens >= 100"))
    reply = server.chat("word " * 200)
    assert reply.status == 400
    assert re.match(
        r"This model's maximum context length is 2048 tokens\. However, your prompt contains \d+ ", reply.error
    )
    assert "ERROR" not in server.log


def test_a_hang_answers_nobody_and_ignores_sigterm(start: Start) -> None:
    server = start(["tiny"], fault("serving", "hang", "has_tools == false and max_tokens == 31"))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 31}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    while server.metric("vllm:num_requests_running") < 1:
        pass
    server.process.send_signal(signal.SIGTERM)
    assert server.chat().status == 200
    assert server.ask("/health").status == 200
    assert server.process.poll() is None
    connection.close()
    while server.metric("vllm:num_requests_running") > 0:
        pass
    assert server.metric("vllm:request_success_total") == 2


# Failing while starting


@pytest.mark.parametrize(
    ("stage", "family", "root", "before", "not_reached"),
    [
        ("container_init", "import_error", "ImportError: libcudart", "", "version 0.32.0"),
        (
            "device_recognition",
            "cuda_init",
            "Error 802: system not yet initialized",
            "Initializing a V1",
            "world_size=8 rank",
        ),
        (
            "device_recognition",
            "driver_mismatch",
            "driver on your system is too old",
            "Initializing a V1",
            "world_size=8 rank",
        ),
        ("comm_group", "nccl", "RuntimeError: NCCL error: unhandled system error", "backend=nccl", "is assigned as"),
        ("comm_group", "rendezvous_timeout", "DistStoreError: Timed out after", "backend=nccl", "is assigned as"),
        ("weight_access", "weights_missing", "Cannot find any model weights", "is assigned as", "Loading weights took"),
        ("weight_access", "weights_corrupt", "incomplete metadata", "is assigned as", "Loading weights took"),
        ("engine_init", "oom_gpu", "CUDA out of memory", "is assigned as", "Loading weights took"),
        ("engine_init", "kernel_compile", "PTXASError", "Loading weights took", "GPU KV cache size"),
        ("engine_init", "illegal_memory_access", "illegal memory access", "Loading weights took", "GPU KV cache size"),
        (
            "engine_init",
            "kv_cache_too_small",
            "To serve at least one request",
            "Available KV cache",
            "GPU KV cache size",
        ),
        (
            "engine_init",
            "config_invalid",
            "Value error, User-specified max_model_len",
            "non-default args",
            "Initializing",
        ),
        ("api_ready", "port_in_use", "OSError: [Errno 98] Address already in use", "non-default args", "Resolved arch"),
        ("api_ready", "timeout", "TimeoutError", "init engine (profile", "Supported tasks"),
    ],
)
def test_a_start_fails_at_its_stage(
    start: Start, stage: str, family: str, root: str, before: str, not_reached: str
) -> None:
    server = start(K3, fault(stage, family), ready=False)
    assert server.end() == 1
    assert root in server.log
    assert before in server.log[: server.log.index(root)]
    assert not_reached not in server.log
    engine_failed = "Engine core initialization failed. See root cause above." in server.log
    assert engine_failed == (stage not in ("container_init", "api_ready") and family != "config_invalid")
    if engine_failed:
        assert (
            server.log.index(root) < server.log.index("EngineCore failed to start.") or "[core.py:1510]" in server.log
        )
        assert server.log.rstrip().endswith("Failed core proc(s): {}")


def test_a_worker_that_fails_prints_before_its_engine(start: Start) -> None:
    server = start(K3, fault("comm_group", "nccl"), ready=False)
    assert server.end() == 1
    first = next(line for line in server.lines if " ERROR " in line)
    assert re.fullmatch(
        r"\(Worker pid=\d+\) ERROR .* \[multiproc_executor\.py:953\] WorkerProc failed to start\.\r", first
    )
    errors = [line for line in server.lines if "[multiproc_executor.py:953]" in line]
    assert all(line.endswith("\r") for line in errors[:-1])
    assert errors[-1].endswith(
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"
    )
    assert "NCCL WARN" not in server.log
    told = start(K3, fault("comm_group", "nccl"), ready=False, NCCL_DEBUG="WARN")
    assert told.end() == 1
    assert "NCCL WARN" in told.log


def test_a_message_replaces_the_root_and_keeps_its_form(start: Start) -> None:
    server = start(K3, fault("weight_access", "weights_missing", message="shard 7 is gone"), ready=False)
    assert server.end() == 1
    assert "RuntimeError: shard 7 is gone" in server.log
    config = start(K3, fault("engine_init", "config_invalid", message="no such backend"), ready=False)
    assert config.end() == 1
    assert "\n  Value error, no such backend [type=value_error" in config.log


def test_an_argument_fault_looks_like_argparse(start: Start) -> None:
    server = start(K3, fault("engine_init", "arg_error"), ready=False)
    assert server.end() == 2
    assert server.log.startswith("usage: vllm serve")
    unknown = start([*K3, "--not-a-flag"], ready=False)
    assert unknown.end() == 2
    assert "vllm: error: unrecognized arguments: --not-a-flag" in unknown.log


def test_a_kill_leaves_no_word(start: Start) -> None:
    server = start(K3, fault("weight_access", "oom_host"), ready=False)
    assert server.end() == -signal.SIGKILL
    assert "ERROR" not in server.log


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux which signals are ignored")
def test_a_start_that_hangs_ignores_sigterm(start: Start) -> None:
    server = start(K3, fault("comm_group", "hang"), ready=False)
    server.wait_for_line("backend=nccl")
    status = Path(f"/proc/{server.process.pid}/status")
    ignored = 0
    while not ignored >> (signal.SIGTERM - 1) & 1:
        found = re.search(r"SigIgn:\s*([0-9a-f]+)", status.read_text(encoding="utf-8"))
        assert found is not None
        ignored = int(found[1], 16)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.poll() is None
    assert "is assigned as" not in server.log


def test_what_vllm_refuses_itself_is_refused(start: Start) -> None:
    holder = start(["tiny"])
    second = start(["tiny", "--port", str(holder.port)], ready=False)
    assert second.end() == 1
    assert "OSError: [Errno 98] Address already in use" in second.log
    long = start([*K3, "--max-model-len", "2097152"], ready=False)
    assert long.end() == 1
    assert "User-specified max_model_len (2097152) is greater than the derived" in long.log
    parser = start([*K3, "--enable-auto-tool-choice", "--tool-call-parser", "kimi_k9"], ready=False)
    assert parser.end() == 1
    assert "KeyError: 'invalid tool call parser: kimi_k9" in parser.log
    without = start([*K3, "--enable-auto-tool-choice"], ready=False)
    assert without.end() == 1
    assert "TypeError: Error: --enable-auto-tool-choice requires --tool-call-parser" in without.log


# End


def test_sigterm_ends_at_once_with_0(start: Start) -> None:
    server = start(K3)
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    assert "[shutdown] API server: shutdown triggered" in server.log
    assert server.lines[-1] == "INFO:     Application shutdown complete."


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"REPRO_SIMULATOR_FAULTS": "/nonexistent/faults.toml"}, "/nonexistent/faults.toml: cannot be read"),
        ({"REPRO_SIMULATOR_STARTUP_SECONDS": "soon"}, "REPRO_SIMULATOR_STARTUP_SECONDS='soon': must be a number"),
    ],
)
def test_a_setting_that_cannot_be_used_ends_with_2(start: Start, environment: dict[str, str], said: str) -> None:
    server = start(["tiny"], ready=False, **environment)
    assert server.end() == 2
    assert said in server.log
