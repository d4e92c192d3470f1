"""The real client against a real socket on loopback: every way in which an exchange can go wrong is an answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from repro.domain.failure import Family
from repro.domain.request import CHAT, Expectation, Request, RequestSet
from repro.machine.clock import SystemClock
from repro.probe.answer import HttpAnswer, NetworkFault
from repro.probe.client import HttpClient
from repro.probe.send import Exchange, send


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    release = threading.Event()
    together = threading.Barrier(4)

    def do_GET(self) -> None:
        self._plain(200, b'{"path": "%s"}' % self.path.encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        match body.get("do"):
            case "stream":
                self._stream([b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', b"data: [DONE]\n\n"])
            case "hang":
                self.release.wait(20)
            case "trickle":
                self._stream([b'data: {"choices": []}\n\n'], hang=True)
            case "drip":
                self._stream([b"data: 1\n\n"], drip=True)
            case "reset":
                self.connection.shutdown(socket.SHUT_RDWR)
            case "cut":
                self.send_response(200)
                self.send_header("content-length", "500")
                self.end_headers()
                self.wfile.write(b"half")
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
            case "together":
                self.together.wait(20)
                self._plain(200, b'{"choices": [{"message": {"content": "ok"}}], "usage": {"prompt_tokens": 3}}')
            case _:
                self._plain(500, b'{"error": {"message": "EngineCore encountered an issue"}}')

    def _plain(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: list[bytes], hang: bool = False, drip: bool = False) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("connection", "close")
        self.end_headers()
        for event in events:
            self.wfile.write(event)
            self.wfile.flush()
        while drip and not self.release.wait(0.05):
            try:
                self.wfile.write(events[0])
            except OSError:
                break
        if hang:
            self.release.wait(20)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def client() -> Iterator[HttpClient]:
    Handler.release.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    with HttpClient(f"http://127.0.0.1:{server.server_port}", SystemClock()) as http:
        yield http
    Handler.release.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_plain_answer(client: HttpClient) -> None:
    answer = client.get("/health", 5)
    assert (answer.status, answer.json, answer.fault, answer.streamed) == (200, {"path": "/health"}, None, False)
    assert answer.first_byte_s is not None
    assert 0 < answer.first_byte_s <= answer.seconds


def test_a_stream_is_read_to_its_end(client: HttpClient) -> None:
    answer = client.post("/x", {"do": "stream"}, 5)
    assert answer.streamed
    assert answer.events[-1] == "[DONE]"
    assert len(answer.events) == 2


@pytest.mark.parametrize(
    ("what", "fault", "status", "text"),
    [
        ("hang", NetworkFault.TIMEOUT, None, ""),
        ("trickle", NetworkFault.TIMEOUT, 200, 'data: {"choices": []}\n\n'),
        ("reset", NetworkFault.RESET, None, ""),
        ("cut", NetworkFault.RESET, 200, "half"),
    ],
)
def test_what_breaks_is_an_answer_with_what_came_before(
    client: HttpClient, what: str, fault: NetworkFault, status: int | None, text: str
) -> None:
    answer = client.post("/x", {"do": what}, 0.3)
    assert (answer.fault, answer.status, answer.text) == (fault, status, text)
    assert answer.seconds < 5


def test_a_stream_that_never_ends_is_cut_at_its_deadline(client: HttpClient) -> None:
    """Each single read is in time here, so only the sum of them can be late."""
    answer = client.post("/x", {"do": "drip"}, 0.4)
    assert (answer.fault, answer.status) == (NetworkFault.TIMEOUT, 200)
    assert len(answer.events) > 2
    assert 0.4 <= answer.seconds < 5


def test_a_wave_leaves_only_when_all_are_there() -> None:
    threads: list[int] = []

    class Counting:
        def get(self, path: str, deadline_s: float) -> HttpAnswer:
            return HttpAnswer(404)

        def post(self, path: str, body: dict[str, object], deadline_s: float) -> HttpAnswer:
            threads.append(threading.active_count())
            return HttpAnswer(200, "{}")

    alone = threading.active_count()
    send(requests("x", 6, 6), Counting())
    assert threads[0] == alone + 6


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused for sure
        with HttpClient(f"http://127.0.0.1:{taken.getsockname()[1]}", SystemClock()) as client:
            assert client.get("/health", 5).fault is NetworkFault.REFUSED


def requests(what: str, count: int, at_once: int) -> RequestSet:
    return RequestSet((Request.of(CHAT, {"do": what}),) * count, at_once, Expectation(deadline_s=10))


def test_a_wave_is_in_flight_together(client: HttpClient) -> None:
    seen: list[Exchange] = []
    exchanges = send(requests("together", 8, 4), client, seen.append)
    assert [e.index for e in exchanges] == list(range(8)) == [e.index for e in seen]
    assert all(e.missed is None and e.prompt_tokens == 3 and e.content_chars == 2 for e in exchanges)


def test_sending_ends_with_the_engine(client: HttpClient) -> None:
    exchanges = send(requests("die", 6, 2), client)
    assert len(exchanges) == 2
    assert [e.missed.family for e in exchanges if e.missed] == [Family.ENGINE_DEAD] * 2
    assert "EngineCore" in exchanges[0].excerpt


def test_other_misses_do_not_end_it(client: HttpClient) -> None:
    sent = RequestSet((Request.of("/x", {"do": "stream"}),) * 3, 1, Expectation(tool_call=True))
    families = [e.missed.family for e in send(sent, client) if e.missed]
    assert families == [Family.BAD_OUTPUT] * 3
