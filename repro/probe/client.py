"""The real client, the only module here that imports httpx.

Every exchange opens its own connection: a kept-alive one that the server closed meanwhile looks like an engine's death.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import httpx

from repro.machine.clock import Clock
from repro.probe.answer import HttpAnswer, NetworkFault

CONNECT_S = 10.0


class HttpClient:
    """Talks to one base URL. Certificates are not verified: the server is one that we started or were pointed at."""

    def __init__(self, base_url: str, clock: Clock, headers: dict[str, str] | None = None) -> None:
        self._clock = clock
        self._http = httpx.Client(
            base_url=base_url,
            headers=headers,
            verify=False,  # noqa: S501 - own server with its own certificate, on loopback
            trust_env=False,  # a proxy of the user's shell must not come between
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, deadline_s: float) -> HttpAnswer:
        return self._exchange("GET", path, None, deadline_s)

    def post(self, path: str, body: dict[str, Any], deadline_s: float) -> HttpAnswer:
        return self._exchange("POST", path, body, deadline_s)

    def _exchange(self, method: str, path: str, body: dict[str, Any] | None, deadline_s: float) -> HttpAnswer:
        begun = self._clock.monotonic()
        reading = _Reading(begun + deadline_s)
        try:
            timeout = httpx.Timeout(deadline_s, connect=min(CONNECT_S, deadline_s))
            with self._http.stream(method, path, json=body, timeout=timeout) as response:
                reading.read(response, self._clock)
            fault, detail = None, ""
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            fault, detail = _fault_of(error, reading.cut_off), str(error)
        return HttpAnswer(
            status=reading.status,
            text=reading.body.decode("utf-8", "replace"),
            seconds=self._clock.monotonic() - begun,
            first_byte_s=None if reading.first_byte is None else reading.first_byte - begun,
            streamed=reading.streamed,
            fault=fault,
            detail=detail,
        )


class _Reading:
    """What has been read of one response, kept when the connection breaks."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.status: int | None = None
        self.streamed = False
        self.body = bytearray()
        self.first_byte: float | None = None
        self.cut_off = False

    def read(self, response: httpx.Response, clock: Clock) -> None:
        """Read to the end; past the deadline the socket is shut, since httpx bounds each read and not their sum."""
        self.status = response.status_code
        self.streamed = response.headers.get("content-type", "").startswith("text/event-stream")
        guard = threading.Timer(max(0.0, self.deadline - clock.monotonic()), self._cut, (response,))
        guard.daemon = True
        guard.start()
        try:
            for chunk in response.iter_bytes():
                if self.first_byte is None:
                    self.first_byte = clock.monotonic()
                self.body += chunk
        finally:
            guard.cancel()
        if self.cut_off:
            raise httpx.ReadTimeout("the answer was not complete at the deadline")

    def _cut(self, response: httpx.Response) -> None:
        self.cut_off = True
        stream = response.extensions.get("network_stream")
        sock = None if stream is None else stream.get_extra_info("socket")
        if sock is not None:
            try:
                sock.shutdown(2)
            except OSError:  # closed in the same moment: the reading has ended anyhow
                return


def _fault_of(error: Exception, cut_off: bool) -> NetworkFault:
    match error:
        case _ if cut_off:
            return NetworkFault.TIMEOUT
        case httpx.ConnectTimeout() | httpx.ReadTimeout() | httpx.WriteTimeout() | httpx.PoolTimeout():
            return NetworkFault.TIMEOUT
        case httpx.ConnectError():
            return NetworkFault.REFUSED
        case httpx.ReadError() | httpx.WriteError() | httpx.RemoteProtocolError() | httpx.CloseError():
            return NetworkFault.RESET
        case _:
            return NetworkFault.OTHER
