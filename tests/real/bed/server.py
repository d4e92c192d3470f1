"""A real server in a test's hands: started, waited for, asked, and surely ended.

The choice: standard library only and independent of repro's own runner, so that the bed can judge the runner. Every
server leads a session of its own; ending it ends that session and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

READY_SECONDS = 180.0
POLL_SECONDS = 0.2
TERM_SECONDS = 15.0


class DidNotStart(AssertionError):
    """The server ended or stayed silent before it was ready; holds the end of its log."""


@dataclass(frozen=True)
class Reply:
    """What one request was answered; status 0 means that the connection broke."""

    status: int
    body: Any


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """One launch; a context manager. `argv` is complete but for `--port`, `env` is the whole environment."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], log: Path, port: int, cwd: Path) -> None:
        self.log = log
        self.port = port
        self.argv = [*argv, "--port", str(port)]
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                self.argv,
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def text(self) -> str:
        return self.log.read_bytes().decode(errors="replace")

    def wait_ready(self, seconds: float = READY_SECONDS) -> None:
        """Returns once `/health` says 200; DidNotStart otherwise."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise DidNotStart(f"ended with {self.process.returncode} before it was ready:\n{self.text()[-3000:]}")
            if self.request("/health").status == 200:
                return
            time.sleep(POLL_SECONDS)
        raise DidNotStart(f"was not ready after {seconds:.0f} s:\n{self.text()[-3000:]}")

    def wait_end(self, seconds: float) -> int | None:
        """The exit code, or None if it still runs after `seconds`."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def request(self, path: str, body: object = None, seconds: float = 60.0) -> Reply:
        """GET, or POST of JSON when there is a body."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:  # noqa: S310 - as above
                return Reply(answer.status, _decoded(answer.read()))
        except urllib.error.HTTPError as refusal:
            return Reply(refusal.code, _decoded(refusal.read()))
        except OSError as broken:
            return Reply(0, str(broken))

    def model(self) -> str:
        """The name that the server gives its model."""
        return str(self.request("/v1/models").body["data"][0]["id"])

    def complete(self, tokens: int, max_tokens: int = 4) -> Reply:
        """One completion of a prompt of exactly `tokens` token ids, all different from request to request in length."""
        prompt = [266 + position % 200 for position in range(tokens)]
        body = {"model": self.model(), "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        return self.request("/v1/completions", body)

    def members(self) -> Iterator[tuple[int, str]]:
        """Process id and command line of everything in the server's session that still lives."""
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.process.pid and fields[0] != "Z":
                    yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()

    def kill_member(self, word: str) -> int:
        """SIGKILL to the one member whose command line holds `word`; returns its process id."""
        (pid,) = (pid for pid, line in self.members() if word in line)
        os.kill(pid, signal.SIGKILL)
        return pid

    def stop(self) -> int:
        """Terminates, then kills what is left of the session; returns the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
            self.wait_end(TERM_SECONDS)
        deadline = time.monotonic() + TERM_SECONDS
        while (left := list(self.members())) and time.monotonic() < deadline:
            for pid, _ in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.wait_end(POLL_SECONDS)
        return self.process.wait()


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode(errors="replace")
