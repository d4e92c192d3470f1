"""What every engine that starts servers holds to, whatever a server is made of. Run on processes and on containers.

The server is a small script that misbehaves as servers do; `MODE` in its environment says how.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from repro.domain.launch import Launch
from repro.machine.clock import SystemClock
from repro.runner.port import Ending, Engine, Place, Server
from repro.runner.process import StopTimes
from repro.runner.record import ServerRecord, open_records
from repro.runner.sweep import orphans, sweep

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()
HASTY = StopTimes(interrupt_s=0.5, terminate_s=0.5, family_s=0.2)
QUICK = StopTimes(interrupt_s=5, terminate_s=5, family_s=2)

SERVER = """
import json, os, signal, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
mode = os.environ["MODE"]
if "ignore" in mode:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif "plain" in mode:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
print("first", flush=True)
print("second, an error", file=sys.stderr, flush=True)
if "exit" in mode:
    sys.exit(3)
if "work" in mode:
    while True:
        pass
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(dict(os.environ)).encode())
words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
server = HTTPServer((words.get("--host", "0.0.0.0"), int(words.get("--port", 8000))), Handler)
print("up", flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

# A repro that starts a server and stays.
OWNER = """
import sys, time
from pathlib import Path
from tests.integration.{module} import make_engine, make_launch
from repro.runner.port import Place
folder, script, mode, more = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4]
print("starting", flush=True)
make_engine().start(make_launch(script, mode, more), Place(folder / "servers", folder / "logs" / "owned.log"))
print("started", flush=True)
time.sleep(600)
"""


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


class EngineContract:
    """The test classes of the engines inherit these tests and say how to make an engine and a launch.

    `module` is the test module's name, with functions `make_engine()` and `make_launch(script, mode, more)`.
    """

    module: str
    launch_s: float

    @abstractmethod
    def engine(self, times: StopTimes) -> Engine: ...

    @abstractmethod
    def launch(self, script: Path, mode: str) -> Launch: ...

    @abstractmethod
    def remains(self, record_id: str) -> bool:
        """Whether anything of this server is still there."""

    @abstractmethod
    def more(self) -> str:
        """What `make_launch` in another process needs to know."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(tmp_path / "servers", tmp_path / "logs" / "server.log", ROOT)

    @pytest.fixture
    def script(self, tmp_path: Path) -> Path:
        path = tmp_path / "server.py"
        path.write_text(SERVER)
        return path

    @pytest.fixture
    def start(self, script: Path, place: Place) -> Iterator[Callable[..., Server]]:
        started: list[Server] = []

        def begin(mode: str, times: StopTimes = QUICK) -> Server:
            server = self.engine(times).start(self.launch(script, mode), place)
            started.append(server)
            return server

        yield begin
        for server in started:
            server.stop()

    def test_it_runs_answers_and_stops(self, start: Callable[..., Server], place: Place) -> None:
        server = start("plain")
        assert [r.id for r in open_records(place.records)] == [server.id]
        until(lambda: "up" in server.log.read_text())
        assert server.exit_evidence() is None
        assert server.where_it_waits()
        assert server.activity().cpu_s > 0
        until(lambda: _answers(server.base_url))
        assert server.stranger() is None
        report = server.stop()
        assert report.ending in {Ending.INTERRUPTED, Ending.TERMINATED}
        assert report.left == ()
        assert server.stop() is report
        assert not self.remains(server.id)
        assert list(open_records(place.records)) == []
        evidence = server.exit_evidence()
        assert evidence is not None
        assert evidence.stopped_by_us
        text = server.log.read_text()
        assert text.index("first") < text.index("up")
        assert "second, an error" in text
        assert "interrupted" in text or "terminated" in text, "its last words are in the log"

    def test_only_the_named_environment_arrives(
        self, start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("NOBODY_NAMED_THIS", "1")
        server = start("plain")
        until(lambda: "up" in server.log.read_text())
        with urllib.request.urlopen(server.base_url, timeout=10) as answer:  # noqa: S310 - loopback
            environment = json.load(answer)
        assert environment["MODE"] == "plain"
        assert "NOBODY_NAMED_THIS" not in environment

    def test_the_end_by_itself_is_told_with_its_code(self, start: Callable[..., Server], place: Place) -> None:
        server = start("exit")
        until(lambda: server.exit_evidence() is not None)
        evidence = server.exit_evidence()
        assert evidence is not None
        assert (evidence.code, evidence.signal, evidence.stopped_by_us) == (3, None, False)
        assert "second, an error" in server.log.read_text(), "the log is complete when the end is told"
        report = server.stop()
        assert (report.ending, report.code) == (Ending.BY_ITSELF, 3)
        assert not self.remains(server.id)
        assert list(open_records(place.records)) == []

    def test_who_ignores_all_signals_is_killed(self, start: Callable[..., Server]) -> None:
        server = start("ignore", HASTY)
        until(lambda: "up" in server.log.read_text())
        report = server.stop()
        assert (report.ending, report.left) == (Ending.KILLED, ())
        assert not self.remains(server.id)

    def test_work_is_seen(self, start: Callable[..., Server]) -> None:
        server = start("work", HASTY)
        until(lambda: "second" in server.log.read_text())
        before = server.activity().cpu_s
        until(lambda: server.activity().cpu_s > before + 0.2)

    def test_a_log_is_never_shared(self, script: Path, place: Place) -> None:
        place.log.parent.mkdir()
        place.log.write_text("another server's")
        with pytest.raises(FileExistsError):
            self.engine(QUICK).start(self.launch(script, "plain"), place)
        assert list(open_records(place.records)) == []

    def test_what_a_killed_repro_left_is_swept_and_nothing_else(
        self, tmp_path: Path, script: Path, start: Callable[..., Server]
    ) -> None:
        mine = start("plain")
        with self.owner(tmp_path, script, "ignore") as killed:
            assert killed.stdout is not None
            assert killed.stdout.readline() == b"starting\n"
            assert killed.stdout.readline() == b"started\n"
            assert sweep(tmp_path / "servers", CLOCK) == (), "its owner lives"
            assert orphans(tmp_path / "servers") == ()
            killed.kill()
            killed.wait()
            orphan = next(r for r in open_records(tmp_path / "servers") if r.id != mine.id)
            (listed,) = orphans(tmp_path / "servers")
            assert listed.id == orphan.id
            assert listed.pids or listed.containers
            assert self.remains(orphan.id), "listing touches nothing"
            (swept,) = sweep(tmp_path / "servers", CLOCK, terminate_s=0.2)
        assert (swept.id, swept.left, swept.gone) == (orphan.id, (), True)
        assert not self.remains(orphan.id)
        assert mine.exit_evidence() is None
        assert [r.id for r in open_records(tmp_path / "servers")] == [mine.id]
        assert sweep(tmp_path / "servers", CLOCK) == ()

    @pytest.mark.parametrize("share", [0.05, 0.2, 0.4, 0.6, 0.8, 1.0])
    def test_a_kill_at_any_moment_of_a_launch_leaves_nothing(self, tmp_path: Path, script: Path, share: float) -> None:
        """`share` is the part of a usual launch's time after which repro is killed."""
        with self.owner(tmp_path, script, "ignore") as killed:
            assert killed.stdout is not None
            assert killed.stdout.readline() == b"starting\n"
            begun = time.monotonic()
            until(lambda: time.monotonic() - begun >= share * self.launch_s)
            killed.kill()
            killed.wait()
            records: list[ServerRecord] = list(open_records(tmp_path / "servers"))
            assert all(swept.gone for swept in sweep(tmp_path / "servers", CLOCK, terminate_s=0.1))
        assert not any(self.remains(record.id) for record in records)
        assert list(open_records(tmp_path / "servers")) == []

    @contextmanager
    def owner(self, tmp_path: Path, script: Path, mode: str) -> Iterator[subprocess.Popen[bytes]]:
        code = textwrap.dedent(OWNER).replace("{module}", self.module)
        argv = [sys.executable, "-c", code, str(tmp_path), str(script), mode, self.more()]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()
                process.wait()
                sweep(tmp_path / "servers", CLOCK, terminate_s=0.1)


def _answers(base_url: str) -> bool:
    host, _, port = base_url.removeprefix("http://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 1):
            return True
    except OSError:
        return False
