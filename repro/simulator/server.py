"""The HTTP surface: vLLM's paths and error bodies on a loopback socket, one thread a connection, HTTP/1.1 keep-alive.

The socket is bound long before it listens, as vLLM does, so a taken port shows early and a client is refused until
the server is ready. A request counts as in flight until its last bytes are about to be sent, so that whoever sends the
next one after reading the answer finds it gone.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any, cast

from repro.simulator import answer_body, metrics, request_body, tokens
from repro.simulator.arguments import ServeArguments
from repro.simulator.engine import Answer, ClientGone, Engine, EngineDead
from repro.simulator.exchange import JSON, Exchange
from repro.simulator.failure_log import ENGINE_DEAD
from repro.simulator.log import Log
from repro.simulator.request_body import Refused, Request
from repro.simulator.startup_log import max_model_len_of

_DEAD_BODY = {"error": {"message": ENGINE_DEAD, "type": "InternalServerError", "param": None, "code": 500}}


@dataclass(frozen=True)
class Serving:
    """What every request needs. `token_seconds` is the pace of the output."""

    arguments: ServeArguments
    engine: Engine
    log: Log
    token_seconds: float
    started: float

    @property
    def max_model_len(self) -> int:
        return max_model_len_of(self.arguments)


class LoopbackServer(ThreadingHTTPServer):
    """Bound at once, listening from `server_activate` on, answering from `start` on."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler, bind_and_activate=False)
        self.serving: Serving | None = None
        self.death_told = threading.Event()
        self._idle = threading.Condition()
        self._exchanges = 0
        try:
            self.server_bind()
        except OSError:
            self.server_close()
            raise

    def server_bind(self) -> None:
        # Without http.server's own look-up of the host's name, which may ask a name server.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def start(self, serving: Serving) -> None:
        self.serving = serving
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def exchange(self, change: int) -> None:
        with self._idle:
            self._exchanges += change
            self._idle.notify_all()

    def wait_idle(self, seconds: float) -> None:
        """Wait until no answer is being written, at most so long."""
        with self._idle:
            self._idle.wait_for(lambda: self._exchanges == 0, seconds)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event, vLLM logs nothing either; anything else is a defect and is shown."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class Handler(Exchange):
    """vLLM's paths on one connection."""

    def note_access(self, line: str) -> None:
        if not self._serving.arguments.value("disable_uvicorn_access_log"):
            self._serving.log.access(line)

    @property
    def _serving(self) -> Serving:
        serving = self._server.serving
        assert serving is not None, "the socket does not listen before there is something to serve"  # noqa: S101
        return serving

    @property
    def _server(self) -> LoopbackServer:
        return cast(LoopbackServer, self.server)

    def do_GET(self) -> None:
        self._exchange(
            {
                "/health": self._health,
                "/ping": self._health,
                "/metrics": self._metrics,
                "/version": lambda: self.send(200, {"version": self._serving.log.dialect.version}),
                "/v1/models": self._models,
                "/load": lambda: self.send(200, {"server_load": self._serving.engine.counters.running}),
            }
        )

    def do_POST(self) -> None:
        self._exchange(
            {
                "/v1/chat/completions": self._chat,
                "/v1/completions": self._completions,
                "/tokenize": self._tokenize,
                "/detokenize": self._detokenize,
                "/ping": self._health,
            }
        )

    def _exchange(self, routes: dict[str, Callable[[], None]]) -> None:
        self._server.exchange(+1)
        try:
            self._dispatch(routes)
        except Refused as refusal:
            self.send(refusal.status, refusal.body)
        except EngineDead:
            self.send(500, _DEAD_BODY)
        except (ClientGone, ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            self._server.exchange(-1)

    def _dispatch(self, routes: dict[str, Callable[[], None]]) -> None:
        path = self.path.partition("?")[0]
        keys = self._serving.arguments.value("api_key")
        if keys and path.startswith("/v1") and self.headers.get("Authorization") not in [f"Bearer {k}" for k in keys]:
            self.read_bytes()
            self.send(401, {"error": "Unauthorized"})
        elif path in routes:
            routes[path]()
        else:
            self.read_bytes()
            self.send(404, {"detail": "Not Found"})

    def _health(self) -> None:
        self.read_bytes()
        dead = self._serving.engine.dead.is_set()
        self.send_bytes(503 if dead else 200, b"", JSON)
        if dead:
            self.close_connection = True
            self._server.death_told.set()

    def _models(self) -> None:
        data = [
            {
                "id": name,
                "object": "model",
                "created": int(self._serving.started),
                "owned_by": "vllm",
                "root": self._serving.arguments.model,
                "parent": None,
                "max_model_len": self._serving.max_model_len,
            }
            for name in self._serving.arguments.served_names
        ]
        self.send(200, {"object": "list", "data": data})

    def _metrics(self) -> None:
        arguments = self._serving.arguments
        caching = bool(arguments.value("enable_prefix_caching"))
        page = metrics.page(self._serving.engine, arguments.served_names[0], caching, self._serving.started)
        self.send_bytes(200, page.encode(), "text/plain; version=1.0.0; charset=utf-8")

    def _tokenize(self) -> None:
        body = self.read_body()
        numbers = request_body.read_tokenize(body)
        shown: dict[str, Any] = {
            "count": len(numbers),
            "max_model_len": self._serving.max_model_len,
            "tokens": numbers,
            "token_strs": [tokens.decode([n]) for n in numbers] if body.get("return_token_strs") else None,
        }
        self.send(200, shown)

    def _detokenize(self) -> None:
        numbers = self.read_body().get("tokens")
        if not isinstance(numbers, list) or not all(isinstance(n, int) and 0 <= n < 2**63 for n in numbers):
            raise Refused(400, "1 validation error:\n  {'loc': ('body', 'tokens'), 'msg': 'a list of token ids'}")
        self.send(200, {"prompt": tokens.decode(numbers)})

    def _chat(self) -> None:
        request = request_body.read_chat(self.read_body(), self._serving.arguments, self._serving.max_model_len)
        if request.stream:
            self._stream([request])
            return
        answer = self._run(request)
        self.send(200, answer_body.whole_chat(request, answer, self._usage([request], [answer]), self._fingerprint))

    def _completions(self) -> None:
        body = self.read_body()
        requests = request_body.read_completion(body, self._serving.arguments, self._serving.max_model_len)
        if requests[0].stream:
            self._stream(requests)
            return
        answers = [self._run(request) for request in requests]
        counted = self._usage(requests, answers)
        self.send(200, answer_body.whole_completion(requests, answers, counted, self._fingerprint))

    def _run(self, request: Request) -> Answer:
        with self._serving.engine.admitted(request, self.still_there) as answer:
            self._serving.engine.wait(answer.completion_tokens * self._serving.token_seconds, self.still_there)
        return answer

    def _stream(self, requests: list[Request]) -> None:
        answers: list[Answer] = []
        opened = False
        try:
            for index, request in enumerate(requests):
                with self._serving.engine.admitted(request, self.still_there) as answer:
                    if not opened:
                        self.open_stream()
                        opened = True
                    self._write_chunks(self._chunks(request, answer, index))
                answers.append(answer)
                last = answer_body.last_chat_chunk(request, answer)
                if not request.chat:
                    last = answer_body.last_completion_chunk(request, answer, index)
                self.write_event(answer_body.event(last))
            if requests[0].include_usage:
                counted = self._usage(requests, answers)
                self.write_event(answer_body.event(answer_body.usage_chunk(requests[0], counted)))
        except EngineDead:
            # vLLM has begun its stream before it knows; the error is an event in it, and the status stays 200.
            if not opened:
                self.open_stream()
            self.write_event(answer_body.event(_DEAD_BODY))
        except Refused as refusal:
            if not opened:
                raise
            self.write_event(answer_body.event(refusal.body))
        self.write_event(b"data: [DONE]\n\n")
        self.end_stream()

    def _chunks(self, request: Request, answer: Answer, index: int) -> Iterator[tuple[int, dict[str, Any]]]:
        interval = int(self._serving.arguments.value("stream_interval"))
        if request.chat:
            return answer_body.chat_chunks(request, answer, interval)
        return answer_body.completion_chunks(request, answer, index, interval)

    def _write_chunks(self, chunks: Iterator[tuple[int, dict[str, Any]]]) -> None:
        for count, chunk in chunks:
            if self._serving.token_seconds:
                self._serving.engine.wait(count * self._serving.token_seconds, self.still_there)
            self.write_event(answer_body.event(chunk))

    def _usage(self, requests: list[Request], answers: list[Answer]) -> dict[str, Any]:
        details = bool(self._serving.arguments.value("enable_prompt_tokens_details"))
        return answer_body.usage(requests, answers, details)

    @property
    def _fingerprint(self) -> str:
        parallel = self._serving.arguments.value("tensor_parallel_size")
        return f"vllm-{self._serving.log.dialect.version}{f'-tp{parallel}' if parallel > 1 else ''}-5107a7ed"
