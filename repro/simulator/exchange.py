"""One HTTP/1.1 connection: reads JSON, writes JSON and event streams, notices a client that went away."""

from __future__ import annotations

import json
import socket
from http.server import BaseHTTPRequestHandler
from typing import Any

from repro.simulator.request_body import Refused

JSON = "application/json"


class Exchange(BaseHTTPRequestHandler):
    """The transport half of a handler; routes and their meaning are in `server`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def version_string(self) -> str:
        return "uvicorn"

    def log_message(self, format: str, *args: Any) -> None:
        """Access lines are written in uvicorn's form instead."""

    def still_there(self) -> bool:
        """Whether the client still holds its connection; looks at the socket without reading from it."""
        try:
            return bool(self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def read_bytes(self) -> bytes:
        try:
            return self.rfile.read(max(int(self.headers.get("Content-Length") or 0), 0))
        except ValueError:
            self.close_connection = True
            raise Refused(400, "Content-Length is no number") from None

    def read_body(self) -> dict[str, Any]:
        data = self.read_bytes()
        try:
            body = json.loads(data)
        except ValueError as error:
            raise Refused(
                400, f"[{{'type': 'json_invalid', 'loc': ('body', 0), 'msg': '{error}'}}]", "Bad Request"
            ) from None
        if not isinstance(body, dict):
            raise Refused(400, "[{'type': 'model_attributes_type', 'loc': ('body',)}]", "Bad Request")
        return body

    def send(self, status: int, body: dict[str, Any]) -> None:
        self.send_bytes(status, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"), JSON)

    def send_bytes(self, status: int, data: bytes, kind: str) -> None:
        self._access(status)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def open_stream(self) -> None:
        self._access(200)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def write_event(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def end_stream(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def note_access(self, line: str) -> None:
        """Where an access line goes; for the server to say."""

    def _access(self, status: int) -> None:
        phrase = self.responses[status][0] if status in self.responses else ""
        client = f"{self.client_address[0]}:{self.client_address[1]}"
        self.note_access(f'INFO:     {client} - "{self.command} {self.path} HTTP/1.1" {status} {phrase}')
