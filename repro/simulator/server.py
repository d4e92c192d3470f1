"""The HTTP surface: vLLM's paths and error bodies on a loopback socket, one thread a connection, HTTP/1.1 keep-alive.

The socket is bound long before it listens, as vLLM does, so a taken port shows early and a client is refused until
the server is ready. A request counts as in flight until its last bytes are about to be sent, so that whoever sends the
next one after reading the answer finds it gone.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from repro.simulator import answer_body, metrics, request_body, tokens
from repro.simulator.arguments import ServeArguments
from repro.simulator.engine import Answer, ClientGone, Engine, EngineDead
from repro.simulator.failure_log import ENGINE_DEAD
from repro.simulator.log import Log
from repro.simulator.request_body import Refused, Request
from repro.simulator.startup_log import VERSION, max_model_len_of

_DEAD_BODY = {"error": {"message": ENGINE_DEAD, "type": "InternalServerError", "param": None, "code": 500}}
_JSON = "application/json"


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
    """Bound at once, listening from `start` on."""

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
        self.server_activate()
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
        """A client that went away is no event; vLLM logs nothing either."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def version_string(self) -> str:
        return "uvicorn"

    def log_message(self, format: str, *args: Any) -> None:
        """Access lines are written in uvicorn's form by `_access`."""

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
                "/version": lambda: self._send(200, {"version": VERSION}),
                "/v1/models": self._models,
                "/load": lambda: self._send(200, {"server_load": self._serving.engine.counters.running}),
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
            self._send(refusal.status, refusal.body)
        except EngineDead:
            self._send(500, _DEAD_BODY)
        except (ClientGone, ConnectionError, TimeoutError):
            self.close_connection = True
        finally:
            self._server.exchange(-1)

    def _dispatch(self, routes: dict[str, Callable[[], None]]) -> None:
        path = self.path.partition("?")[0]
        keys = self._serving.arguments.value("api_key")
        if keys and path.startswith("/v1") and self.headers.get("Authorization") not in [f"Bearer {k}" for k in keys]:
            self._read_bytes()
            self._send(401, {"error": "Unauthorized"})
        elif path in routes:
            routes[path]()
        else:
            self._read_bytes()
            self._send(404, {"detail": "Not Found"})

    def _health(self) -> None:
        self._read_bytes()
        dead = self._serving.engine.dead.is_set()
        self._send_bytes(503 if dead else 200, b"", _JSON)
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
        self._send(200, {"object": "list", "data": data})

    def _metrics(self) -> None:
        arguments = self._serving.arguments
        caching = bool(arguments.value("enable_prefix_caching"))
        page = metrics.page(self._serving.engine, arguments.served_names[0], caching, self._serving.started)
        self._send_bytes(200, page.encode(), "text/plain; version=1.0.0; charset=utf-8")

    def _tokenize(self) -> None:
        body = self._read_body()
        numbers = request_body.read_tokenize(body)
        shown: dict[str, Any] = {
            "count": len(numbers),
            "max_model_len": self._serving.max_model_len,
            "tokens": numbers,
            "token_strs": [tokens.decode([n]) for n in numbers] if body.get("return_token_strs") else None,
        }
        self._send(200, shown)

    def _detokenize(self) -> None:
        numbers = self._read_body().get("tokens")
        if not isinstance(numbers, list) or not all(isinstance(n, int) and 0 <= n < 2**63 for n in numbers):
            raise Refused(400, "1 validation error:\n  {'loc': ('body', 'tokens'), 'msg': 'a list of token ids'}")
        self._send(200, {"prompt": tokens.decode(numbers)})

    def _chat(self) -> None:
        request = request_body.read_chat(self._read_body(), self._serving.arguments, self._serving.max_model_len)
        if request.stream:
            self._stream([request])
            return
        answer = self._run(request)
        self._send(200, answer_body.whole_chat(request, answer, self._usage([request], [answer]), self._fingerprint))

    def _completions(self) -> None:
        body = self._read_body()
        requests = request_body.read_completion(body, self._serving.arguments, self._serving.max_model_len)
        if requests[0].stream:
            self._stream(requests)
            return
        answers = [self._run(request) for request in requests]
        counted = self._usage(requests, answers)
        self._send(200, answer_body.whole_completion(requests, answers, counted, self._fingerprint))

    def _run(self, request: Request) -> Answer:
        with self._serving.engine.admitted(request, self._still_there) as answer:
            self._serving.engine.wait(answer.completion_tokens * self._serving.token_seconds, self._still_there)
        return answer

    def _stream(self, requests: list[Request]) -> None:
        answers: list[Answer] = []
        opened = False
        try:
            for index, request in enumerate(requests):
                with self._serving.engine.admitted(request, self._still_there) as answer:
                    if not opened:
                        self._open_stream()
                        opened = True
                    self._write_chunks(self._chunks(request, answer, index))
                answers.append(answer)
                last = answer_body.last_chat_chunk(request, answer)
                if not request.chat:
                    last = answer_body.last_completion_chunk(request, answer, index)
                self._write_event(answer_body.event(last))
            if requests[0].include_usage:
                counted = self._usage(requests, answers)
                self._write_event(answer_body.event(answer_body.usage_chunk(requests[0], counted)))
        except EngineDead:
            # A stream has no status left to give; the error is an event in it, as in vLLM.
            if not opened:
                self._open_stream()
            self._write_event(answer_body.event(_DEAD_BODY))
        self._write_event(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _chunks(self, request: Request, answer: Answer, index: int) -> Iterator[tuple[int, dict[str, Any]]]:
        interval = int(self._serving.arguments.value("stream_interval"))
        if request.chat:
            return answer_body.chat_chunks(request, answer, interval)
        return answer_body.completion_chunks(request, answer, index, interval)

    def _write_chunks(self, chunks: Iterator[tuple[int, dict[str, Any]]]) -> None:
        for count, chunk in chunks:
            if self._serving.token_seconds:
                self._serving.engine.wait(count * self._serving.token_seconds, self._still_there)
            self._write_event(answer_body.event(chunk))

    def _usage(self, requests: list[Request], answers: list[Answer]) -> dict[str, Any]:
        details = bool(self._serving.arguments.value("enable_prompt_tokens_details"))
        return answer_body.usage(requests, answers, details)

    @property
    def _fingerprint(self) -> str:
        parallel = self._serving.arguments.value("tensor_parallel_size")
        return f"vllm-{VERSION}{f'-tp{parallel}' if parallel > 1 else ''}-5107a7ed"

    def _still_there(self) -> bool:
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def _read_bytes(self) -> bytes:
        try:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        except ValueError:
            self.close_connection = True
            raise Refused(400, "Content-Length is no number") from None

    def _read_body(self) -> dict[str, Any]:
        data = self._read_bytes()
        try:
            body = json.loads(data)
        except ValueError as error:
            raise Refused(
                400, f"[{{'type': 'json_invalid', 'loc': ('body', 0), 'msg': '{error}'}}]", "Bad Request"
            ) from None
        if not isinstance(body, dict):
            raise Refused(400, "[{'type': 'model_attributes_type', 'loc': ('body',)}]", "Bad Request")
        return body

    def _send(self, status: int, body: dict[str, Any]) -> None:
        self._send_bytes(status, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"), _JSON)

    def _send_bytes(self, status: int, data: bytes, kind: str) -> None:
        self._access(status)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _open_stream(self) -> None:
        self._access(200)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _write_event(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _access(self, status: int) -> None:
        if self._serving.arguments.value("disable_uvicorn_access_log"):
            return
        phrase = self.responses[status][0] if status in self.responses else ""
        client = f"{self.client_address[0]}:{self.client_address[1]}"
        self._serving.log.bare(f'INFO:     {client} - "{self.command} {self.path} HTTP/1.1" {status} {phrase}')
