"""The process engine with real processes: a small script that misbehaves as servers do, and the simulator."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from repro.domain.command import Command
from repro.domain.failure import Family
from repro.domain.launch import Launch
from repro.domain.request import CHAT, RequestSet, RequestShape
from repro.domain.stage import Stage
from repro.machine.clock import SystemClock
from repro.machine.family import FamilySigns, end_family, find_family, hold_output, is_output_held
from repro.machine.processes import same_process
from repro.probe.client import HttpClient
from repro.probe.metrics import fetch_metrics, prefix_caching_in_force
from repro.probe.prompt import build
from repro.probe.readiness import CompletionReadiness
from repro.probe.send import send
from repro.probe.tokens import HttpTokenizer
from repro.runner.port import Ending, Place
from repro.runner.process import ProcessEngine, ProcessServer, StopTimes
from repro.runner.record import MARK, open_records
from repro.runner.sweep import sweep
from repro.runner.watch import Deadlines, NotReady, Ready, Watch
from repro.triage import Triage

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()
QUICK = StopTimes(interrupt_s=5, terminate_s=5, family_s=2)

# MODE says how to behave. A worker has a session of its own and no environment to be read, like vLLM's renamed engine.
SERVER = """
import json, os, signal, subprocess, sys, time
mode = os.environ["MODE"]
if "ignore" in mode:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "worker" in mode:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    worker = subprocess.Popen([sys.executable, "-c", code], env={}, start_new_session=True)
    print("worker", worker.pid, flush=True)
if "exit" in mode:
    os._exit(3)
print("up", json.dumps(sorted(os.environ)), sys.argv[1:], flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def until(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "servers", tmp_path / "logs" / "server.log", ROOT)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


def small_launch(script: Path, mode: str) -> Launch:
    return Launch(Command((sys.executable, str(script)), "m"), environment=(("MODE", mode),))


@pytest.fixture
def start(script: Path, place: Place) -> Iterator[Callable[[str], ProcessServer]]:
    started: list[ProcessServer] = []
    engine = ProcessEngine(CLOCK, stop_times=QUICK)

    def begin(mode: str) -> ProcessServer:
        server = engine.start(small_launch(script, mode), place)
        started.append(server)
        if "exit" not in mode:
            until(lambda: "up" in server.log.read_text())
        return server

    yield begin
    for server in started:
        server.stop()


def signs(server: ProcessServer) -> FamilySigns:
    return FamilySigns(MARK, server.id, server.log)


def test_a_server_that_obeys_is_interrupted(start: Callable[[str], ProcessServer], place: Place) -> None:
    server = start("plain")
    assert server.exit_evidence() is None
    assert is_output_held(server.log)
    assert [r.id for r in open_records(place.records)] == [server.id]
    assert server.where_it_waits()
    report = server.stop()
    assert report.ending in {Ending.INTERRUPTED, Ending.TERMINATED}  # a busy machine may need the second word
    assert report.left == ()
    assert server.stop() is report
    assert "interrupted" in server.log.read_text()
    assert list(open_records(place.records)) == []
    evidence = server.exit_evidence()
    assert evidence is not None
    assert evidence.stopped_by_us


def test_only_the_named_environment_arrives(start: Callable[[str], ProcessServer]) -> None:
    server = start("plain")
    up = next(line for line in server.log.read_text().splitlines() if line.startswith("up"))
    names = set(json.JSONDecoder().raw_decode(up[3:])[0]) - {"LC_CTYPE"}  # Python itself adds this one
    assert {MARK, "MODE", "PATH"} <= names
    assert names <= {MARK, "MODE", "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"}
    assert server.base_url.rpartition(":")[2] in up


def test_a_server_that_ignores_all_signals_is_killed_with_its_workers(script: Path, place: Place) -> None:
    hasty = StopTimes(interrupt_s=0.2, terminate_s=0.2, family_s=0.2)
    server = ProcessEngine(CLOCK, stop_times=hasty).start(small_launch(script, "ignore worker"), place)
    until(lambda: "up" in server.log.read_text())
    assert len(find_family(signs(server))) == 2
    report = server.stop()
    assert (report.ending, report.code, report.left) == (Ending.KILLED, -signal.SIGKILL, ())
    assert find_family(signs(server)) == ()


def test_a_log_is_never_shared(script: Path, place: Place) -> None:
    place.log.parent.mkdir()
    place.log.write_text("another server's")
    with pytest.raises(FileExistsError):
        ProcessEngine(CLOCK).start(small_launch(script, "plain"), place)
    assert list(open_records(place.records)) == []


def test_workers_of_a_server_that_ended_by_itself_are_ended(start: Callable[[str], ProcessServer]) -> None:
    server = start("worker exit")
    until(lambda: server.exit_evidence() is not None)
    evidence = server.exit_evidence()
    assert evidence is not None
    assert evidence.code == 3
    (worker,) = find_family(signs(server))
    assert str(worker.pid) in server.log.read_text()
    assert server.stop().ending is Ending.BY_ITSELF
    assert not same_process(worker.pid, worker.started)


def test_who_only_reads_the_log_is_no_member(start: Callable[[str], ProcessServer]) -> None:
    server = start("plain")
    code = "import sys, time; held = open(sys.argv[1]); print('up', flush=True); time.sleep(600)"
    reader = subprocess.Popen([sys.executable, "-c", code, str(server.log)], env={}, stdout=subprocess.PIPE)
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"up\n"
        server.stop()
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.communicate()


# A repro that starts a server and stays. With `die`, it is killed at that moment of the launch.
OWNER = """
import os, signal, sys, time
from pathlib import Path
from repro.domain.command import Command
from repro.domain.launch import Launch
from repro.machine.clock import SystemClock
from repro.runner import process
from repro.runner.port import Place
folder, script, mode, die = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
start = process.start_detached
def dying(*args):
    if die == "after":
        start(*args)
    os.kill(os.getpid(), signal.SIGKILL)
if die:
    process.start_detached = dying
launch = Launch(Command((sys.executable, script), "m"), environment=(("MODE", mode),))
print("starting", flush=True)
process.ProcessEngine(SystemClock()).start(launch, Place(folder / "servers", folder / "logs" / f"{os.getpid()}.log"))
print("started", flush=True)
time.sleep(600)
"""


@contextmanager
def owner(tmp_path: Path, script: Path, mode: str, die: str = "") -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", textwrap.dedent(OWNER), str(tmp_path), str(script), mode, die]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            sweep(tmp_path / "servers", CLOCK, terminate_s=0.1)


def test_what_a_killed_repro_left_is_swept_and_nothing_else(
    tmp_path: Path, script: Path, start: Callable[[str], ProcessServer]
) -> None:
    mine = start("plain")
    with owner(tmp_path, script, "worker ignore") as killed:
        log = tmp_path / "logs" / f"{killed.pid}.log"
        until(lambda: log.exists() and "up" in log.read_text())
        assert sweep(tmp_path / "servers", CLOCK) == (), "its owner lives"
        orphan = next(r for r in open_records(tmp_path / "servers") if r.id != mine.id)
        killed.kill()
        killed.wait()
        before = find_family(orphan.signs)
        assert len(before) == 2
        (swept,) = sweep(tmp_path / "servers", CLOCK, terminate_s=0.2)
    assert (swept.id, swept.left, swept.gone) == (orphan.id, (), True)
    assert {ref.pid for ref in before} == set(swept.ended)
    assert not any(same_process(ref.pid, ref.started) for ref in before)
    assert mine.exit_evidence() is None
    assert [r.id for r in open_records(tmp_path / "servers")] == [mine.id]
    assert sweep(tmp_path / "servers", CLOCK) == ()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_between_record_and_start_leaves_nothing(tmp_path: Path, script: Path, moment: str) -> None:
    with owner(tmp_path, script, "ignore", moment) as killed:
        assert killed.wait(20) == -signal.SIGKILL
        (swept,) = sweep(tmp_path / "servers", CLOCK, terminate_s=0.2)
    assert len(swept.ended) == (1 if moment == "after" else 0)
    assert list(open_records(tmp_path / "servers")) == []


def test_a_kill_at_any_moment_of_a_launch_leaves_nothing(tmp_path: Path, script: Path) -> None:
    chance = random.Random(7)
    launched: list[FamilySigns] = []
    for _ in range(8):
        with owner(tmp_path, script, "ignore") as killed:
            assert killed.stdout is not None
            assert killed.stdout.readline() == b"starting\n"
            time.sleep(chance.uniform(0, 0.04))
            killed.kill()
            killed.wait()
            launched += [r.signs for r in open_records(tmp_path / "servers")]
            assert all(swept.gone for swept in sweep(tmp_path / "servers", CLOCK, terminate_s=0.1))
    assert not any(find_family(signs) or is_output_held(signs.output) for signs in launched)
    assert list(open_records(tmp_path / "servers")) == []


class OpensAGate:
    """A clock that lets the late child go on once somebody waits for it."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        self._gate.touch()
        time.sleep(seconds)


def test_a_child_that_executes_only_after_the_sweep_began_is_waited_for(tmp_path: Path, script: Path) -> None:
    """Between fork and exec a child shows the environment of repro; on a loaded machine that lasts."""
    gate, log = tmp_path / "gate", tmp_path / "log"
    wait = (
        "import os, sys, time\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
        "os.execve(sys.executable, [sys.executable, sys.argv[2]], {'MODE': 'ignore', sys.argv[3]: 'late'})"
    )
    with log.open("xb") as output:
        hold_output(output)
        child = subprocess.Popen([sys.executable, "-c", wait, str(gate), str(script), MARK], stdout=output)
    try:
        signs = FamilySigns(MARK, "late", log)
        assert find_family(signs) == ()
        assert is_output_held(log)
        end = end_family(signs, OpensAGate(gate), 0.1)
        assert end.gone
        assert end.ended == (child.pid,)
        assert child.wait(5) != 0
    finally:
        child.kill()
        child.wait()


def simulated(tmp_path: Path, faults: str = "", **flags: str) -> Launch:
    path = tmp_path / "faults.toml"
    path.write_text(faults)
    command = Command((sys.executable, "-m", "repro.simulator", "serve"), "demo/model")
    for name, value in flags.items():
        command = command.with_flag(f"--{name.replace('_', '-')}", value)
    return Launch(command, environment=(("REPRO_SIMULATOR_FAULTS", str(path)),))


@pytest.fixture
def simulate(tmp_path: Path, place: Place) -> Iterator[Callable[..., tuple[ProcessServer, Watch]]]:
    started: list[ProcessServer] = []

    def begin(faults: str = "", **flags: str) -> tuple[ProcessServer, Watch]:
        hasty = StopTimes(interrupt_s=2, terminate_s=0.5, family_s=1)
        server = ProcessEngine(CLOCK, stop_times=hasty).start(simulated(tmp_path, faults, **flags), place)
        started.append(server)
        limits = Deadlines(total_s=60, stall_s=2, grace_s=1, death_s=8)
        return server, Watch(server, Triage(), CLOCK, limits)

    yield begin
    for server in started:
        server.stop()


def readiness() -> CompletionReadiness:
    return CompletionReadiness(lambda url: HttpClient(url, CLOCK))


Simulate = Callable[..., tuple[ProcessServer, Watch]]


def test_simulator_healthy(simulate: Simulate) -> None:
    server, watch = simulate()
    ready = readiness()
    end = watch.await_ready(ready)
    assert isinstance(end, Ready), end
    assert {Stage.COMM_GROUP, Stage.WEIGHT_ACCESS, Stage.ENGINE_INIT, Stage.API_READY} <= set(end.reached)
    assert ready.served is not None
    assert ready.served.model == "demo/model"
    with HttpClient(server.base_url, CLOCK) as client:
        shape = RequestShape(path=CHAT, input_tokens=300, max_tokens=8, concurrency=3, stream=True)
        requests = build(shape, HttpTokenizer(client), ready.served.model, cache_salt="one")
        assert isinstance(requests, RequestSet), requests
        exchanges = send(requests, client)
        assert [e.missed for e in exchanges] == [None] * 3
        assert {e.prompt_tokens for e in exchanges} == {300}
        metrics = fetch_metrics(client)
    assert metrics is not None
    assert prefix_caching_in_force(metrics) is True
    assert watch.after_requests(suspected=False) is None
    assert server.stop().ending in {Ending.INTERRUPTED, Ending.TERMINATED}


def test_simulator_start_up_failure(simulate: Simulate) -> None:
    server, watch = simulate('[[fault]]\nstage = "engine_init"\nfamily = "kv_cache_too_small"\n')
    end = watch.await_ready(readiness())
    assert isinstance(end, NotReady)
    assert (end.failure.stage, end.failure.family) == (Stage.ENGINE_INIT, Family.KV_CACHE_TOO_SMALL)
    assert end.failure.root_line is not None
    assert server.stop().left == ()


def test_simulator_hang_is_named_and_killed(simulate: Simulate) -> None:
    server, watch = simulate('[[fault]]\nstage = "weight_access"\nfamily = "hang"\ndo = "hang"\n')
    end = watch.await_ready(readiness())
    assert isinstance(end, NotReady)
    assert (end.failure.stage, end.failure.family) == (Stage.WEIGHT_ACCESS, Family.HANG)
    assert end.early_end
    assert str(server.pid) in end.failure.detail
    server.stop()
    assert find_family(signs(server)) == ()


def test_simulator_engine_death_while_serving(simulate: Simulate) -> None:
    faults = '[[fault]]\nstage = "serving"\nfamily = "illegal_memory_access"\nwhen = "input_tokens >= 100"\n'
    server, watch = simulate(faults)
    ready = readiness()
    assert isinstance(watch.await_ready(ready), Ready)
    assert ready.served is not None
    with HttpClient(server.base_url, CLOCK) as client:
        for n, dies in ((99, False), (100, True)):
            requests = build(RequestShape(input_tokens=n, max_tokens=4), HttpTokenizer(client), ready.served.model)
            assert isinstance(requests, RequestSet), requests
            (exchange,) = send(requests, client)
            assert (exchange.missed is not None) is dies
            failure = watch.after_requests(suspected=dies)
            assert (failure is not None) is dies
    assert failure is not None
    assert (failure.stage, failure.family) == (Stage.SERVING, Family.ILLEGAL_MEMORY_ACCESS)
    evidence = server.exit_evidence()
    assert evidence is not None
    assert evidence.code == 0
