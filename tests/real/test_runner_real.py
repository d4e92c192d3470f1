"""The real vLLM in containers and over two nodes: what fails is named by `repro run`, with the rank if there are two.

The containers are thin: an image of links, the host's own programs mounted read-only. The nodes are two network
namespaces joined by a cable (a veth pair) that can be cut, as between two machines.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from repro.domain.command import parse
from repro.domain.failure import Failure, Family
from repro.domain.launch import Launch
from repro.domain.stage import Stage
from repro.machine.clock import SystemClock
from repro.machine.family import FamilySigns, find_family
from repro.probe.client import HttpClient
from repro.probe.readiness import CompletionReadiness
from repro.runner.nodes import NodesEngine, NodesServer, parse_node
from repro.runner.port import Place
from repro.runner.record import MARK
from repro.runner.watch import Deadlines, NotReady, Ready, Watch
from repro.triage import Triage
from tests.integration.docker_bed import docker, no_daemon, thin_image
from tests.real.bed.install import venv_path
from tests.real.repro_command import Ran, repro

CLOCK = SystemClock()
QUICK = ("--max-model-len", "1024", "--enforce-eager", "--kv-cache-memory-bytes", "67108864")
ENVIRONMENT = ("OMP_NUM_THREADS=1", "VLLM_ENABLE_V1_MULTIPROCESSING=0", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1")
RunLine = Callable[..., tuple[str, ...]]
RunRepro = Callable[..., Ran]


@pytest.fixture
def image() -> Iterator[str]:
    if reason := no_daemon():
        pytest.skip(reason)
    with thin_image() as reference:
        yield reference
        assert not docker("ps", "--all", "--quiet", "--filter", f"ancestor={reference}"), "a container was left"


@pytest.fixture
def run_line(image: str, vllm: Path, tiny_model: Path, tmp_path: Path) -> RunLine:
    """A production command in a container: `options` of docker run, `flags` of vLLM."""
    shown = (Path("/usr"), Path(_base_python()), venv_path())

    def line(
        *options: str,
        flags: tuple[str, ...] = (),
        model: Path | None = None,
        mount: Path | None = None,
        image: str = image,
        program: str = str(vllm),
    ) -> tuple[str, ...]:
        binds = [word for path in shown for word in ("-v", f"{path}:{path}:ro")]
        binds += ["-v", f"{vllm.parent.parent}:{vllm.parent.parent}"]  # where launches are counted
        binds += ["-v", f"{mount or tiny_model}:{model or tiny_model}:ro"]
        environment = [word for pair in (*ENVIRONMENT, "HOME=/tmp") for word in ("-e", pair)]
        served = (program, "serve", str(model or tiny_model), *QUICK, *flags)
        return ("docker", "run", "--rm", "-p", "8000:8000", *binds, *environment, *options, image, *served)

    return line


def _base_python() -> str:
    """Where the interpreter of vLLM's environment lives, which a bind of the environment alone does not show."""
    return str((venv_path() / "bin" / "python").resolve().parent.parent)


@pytest.fixture
def run_repro(tmp_path: Path) -> RunRepro:
    folder = tmp_path / "workspace"
    (folder / ".repro").mkdir(parents=True)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return lambda *words: repro(("run", "--json", *words), folder, kept)


def failure_of(ran: Ran) -> dict[str, Any]:
    assert ran.code == 1, ran.talk
    failure: dict[str, Any] = ran.document["failure"]
    return failure


# The daemon refuses: no vLLM is launched at all.
REFUSED = {
    "no image": ({"image": "repro-no-such-image:1"}, (), "image_missing", "No such image"),
    "no GPU": ({}, ("--gpus", "all"), "other", "could not select device driver"),
    "no mount source": ({}, ("--mount", "type=bind,src=/no/such,dst=/data"), "other", "/no/such"),
    "no entrypoint": ({"program": "/opt/none/bin/vllm"}, (), "entrypoint", "/opt/none/bin/vllm"),
}


@pytest.mark.docker
@pytest.mark.parametrize("case", REFUSED)
def test_a_container_that_the_daemon_refuses(run_line: RunLine, run_repro: RunRepro, case: str) -> None:
    keywords, options, family, words = REFUSED[case]
    failure = failure_of(run_repro("--", *run_line(*options, **keywords)))
    assert (failure["stage"], failure["family"]) == ("container_init", family)
    assert words in failure["root_line"]


@pytest.mark.docker
def test_a_published_port_that_is_taken(run_line: RunLine, run_repro: RunRepro) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failure = failure_of(run_repro("--", *run_line("-p", f"127.0.0.1:{port}:9400")))
    assert (failure["stage"], failure["family"]) == ("container_init", "port_in_use")


@pytest.mark.docker
def test_a_kill_for_lack_of_memory_without_a_word(run_line: RunLine, run_repro: RunRepro) -> None:
    failure = failure_of(run_repro("--", *run_line("--memory", "500m", "--memory-swap", "500m")))
    assert (failure["stage"], failure["family"]) in {("engine_init", "oom_host"), ("container_init", "oom_host")}
    assert "lack of memory" in failure["detail"]


@pytest.mark.docker
def test_a_root_without_a_place_to_write(run_line: RunLine, run_repro: RunRepro) -> None:
    failure = failure_of(run_repro("--", *run_line("--read-only")))
    assert (failure["stage"], failure["family"]) == ("container_init", "permission")
    assert "temporary directory" in failure["root_line"]


@pytest.mark.docker
@pytest.mark.real_full
def test_a_volume_that_the_daemon_made_empty(run_line: RunLine, run_repro: RunRepro, tmp_path: Path) -> None:
    failure = failure_of(run_repro("--", *run_line(mount=tmp_path / "nothing-was-here")))
    assert (failure["stage"], failure["family"]) == ("weight_access", "weights_missing")


@pytest.mark.docker
@pytest.mark.real_full
def test_weights_that_the_containers_user_may_not_read(
    run_line: RunLine, run_repro: RunRepro, vllm: Path, tiny_model: Path, tmp_path: Path
) -> None:
    vllm.parent.parent.chmod(0o755)  # that user counts its launch too
    (vllm.parent.parent / "launches.txt").chmod(0o666)
    closed = tmp_path / "closed"
    shutil.copytree(tiny_model, closed)
    for weights in closed.glob("*.safetensors"):
        weights.chmod(0o600)
    failure = failure_of(run_repro("--", *run_line("--user", "12345", mount=closed)))
    assert failure["stage"] == "weight_access"
    assert failure["family"] in {"permission", "weights_missing"}


@pytest.mark.docker
@pytest.mark.real_full
def test_a_container_that_serves(run_line: RunLine, run_repro: RunRepro) -> None:
    ran = run_repro("--input-tokens", "100", "--", *run_line())
    assert ran.code == 0, ran.talk
    assert "serving" in ran.document["reached"]


# ---- two nodes ---------------------------------------------------------------------------------------------------


class Pair:
    """Two network namespaces with a cable between them, and one to here so that rank 0 can be asked."""

    def __init__(self) -> None:
        tag = secrets.token_hex(2)
        self.nodes = (f"repro-{tag}-0", f"repro-{tag}-1")
        self.here = f"rh{tag}"
        number = 1 + int(tag, 16) % 200
        self.addresses = tuple(f"10.77.{number}.{n}" for n in (1, 2))
        self._near, self._far = f"10.78.{number}.254", f"10.78.{number}.1"

    def make(self) -> None:
        zero, one = self.nodes
        for node in self.nodes:
            ip("netns", "add", node)
        ip("link", "add", "eth0", "netns", zero, "type", "veth", "peer", "name", "eth0", "netns", one)
        ip("link", "add", self.here, "type", "veth", "peer", "name", "host", "netns", zero)
        for node, address in zip(self.nodes, self.addresses, strict=True):
            ip("-n", node, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", node, "link", "set", "eth0", "up")
            ip("-n", node, "link", "set", "lo", "up")
        ip("-n", zero, "address", "add", f"{self._far}/24", "dev", "host")
        ip("-n", zero, "link", "set", "host", "up")
        ip("address", "add", f"{self._near}/24", "dev", self.here)
        ip("link", "set", self.here, "up")
        ip("route", "add", f"{self.addresses[0]}/32", "via", self._far)

    def cut(self) -> None:
        ip("-n", self.nodes[1], "link", "set", "eth0", "down")

    def remove(self) -> None:
        for node in self.nodes:
            subprocess.run(["ip", "netns", "delete", node], capture_output=True, timeout=20, check=False)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], capture_output=True, timeout=20, check=True)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    try:
        made.make()
    except (OSError, subprocess.SubprocessError) as error:
        made.remove()
        pytest.skip(f"no network namespaces here (they take root): {error}")
    yield made
    made.remove()


class Group:
    """A launch over the pair, watched; `timeouts` are vLLM's own for a rank that does not answer."""

    def __init__(self, pair: Pair, vllm: Path, model: Path, environment: dict[str, str], folder: Path) -> None:
        nodes = [parse_node(f"netns:{name}", rank, CLOCK) for rank, name in enumerate(pair.nodes)]
        workers = {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "0|1",
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "40",
        }
        command = parse((str(vllm), "serve", str(model), *QUICK, "--tensor-parallel-size", "2"))
        launch = Launch(command, tuple({**environment, **workers}.items()))
        self.server: NodesServer = NodesEngine(nodes, CLOCK).start(
            launch, Place(folder / "servers", folder / "server.log")
        )
        self.watch = Watch(self.server, Triage(), CLOCK, Deadlines(total_s=300, stall_s=60))
        self._readiness = CompletionReadiness(lambda url: HttpClient(url, CLOCK))

    def ready(self) -> Ready | NotReady:
        return self.watch.await_ready(self._readiness)

    def complete(self) -> int | None:
        assert self._readiness.served is not None
        with HttpClient(self.server.base_url, CLOCK) as client:
            body = {"model": self._readiness.served.model, "prompt": "hello", "max_tokens": 4}
            return client.post("/v1/completions", body, 120).status

    def members(self, rank: int) -> list[psutil.Process]:
        server = self.server.ranks[rank]
        refs = find_family(FamilySigns(MARK, server.id, server.log))
        return [psutil.Process(ref.pid) for ref in refs]

    def failure(self) -> Failure:
        failure = self.watch.after_requests(suspected=True)
        assert failure is not None
        return failure


@pytest.fixture
def group(
    pair: Pair, vllm: Path, tiny_model: Path, server_environment: dict[str, str], tmp_path: Path
) -> Iterator[Group]:
    begun = Group(pair, vllm, tiny_model, server_environment, tmp_path)
    yield begun
    report = begun.server.stop()
    assert report.left == ()
    assert not begun.members(0) + begun.members(1)


@pytest.mark.real_full
def test_two_nodes_are_ready_and_the_killed_rank_is_named(group: Group) -> None:
    end = group.ready()
    assert isinstance(end, Ready), end
    assert group.complete() == 200
    worker = group.members(1)[-1]
    worker.send_signal(signal.SIGKILL)
    assert group.complete() == 500
    failure = group.failure()
    assert failure.stage is Stage.SERVING
    assert failure.family is Family.ENGINE_DEAD
    assert group.watch.failed_rank == 1
    assert failure.detail.startswith("rank 1 failed first; rank 0 followed (gloo")


@pytest.mark.real_full
def test_a_cut_cable_is_told_by_the_rank_that_waits(group: Group, pair: Pair) -> None:
    end = group.ready()
    assert isinstance(end, Ready), end
    pair.cut()
    assert group.complete() == 500
    failure = group.failure()
    assert (failure.stage, failure.family) == (Stage.SERVING, Family.TIMEOUT)
    assert group.watch.failed_rank == 0
    assert "rank 1" in failure.detail


@pytest.mark.real_full
def test_a_rank_that_is_killed_while_the_group_forms_is_named(group: Group) -> None:
    leader = psutil.Process(group.members(1)[0].pid)
    deadline = time.monotonic() + 60
    while "world_size=2" not in group.server.ranks[1].log.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)
    leader.send_signal(signal.SIGKILL)
    end = group.ready()
    assert isinstance(end, NotReady)
    assert end.rank == 1
    assert "rank 1 failed first" in end.failure.detail


@pytest.mark.real_full
def test_nodes_that_cannot_reach_each_other_hang_in_the_communication_group(group: Group, pair: Pair) -> None:
    pair.cut()
    end = group.ready()
    assert isinstance(end, NotReady)
    assert end.early_end
    assert (end.failure.stage, end.failure.family) in {
        (Stage.COMM_GROUP, Family.HANG),
        (Stage.COMM_GROUP, Family.RENDEZVOUS_TIMEOUT),
    }
    assert end.saved_s > 60
    assert "rank 1: " in end.failure.detail, "where each rank waits is told"


@pytest.mark.real_full
def test_repro_run_over_two_nodes(
    pair: Pair, run_repro: RunRepro, vllm: Path, tiny_model: Path, server_environment: dict[str, str]
) -> None:
    nodes = [word for name in pair.nodes for word in ("--node", f"netns:{name}")]
    kept = ("TMPDIR", "VLLM_CACHE_ROOT", "HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "OMP_NUM_THREADS")
    pairs = [f"{name}={server_environment[name]}" for name in kept]
    pairs.append("VLLM_CPU_OMP_THREADS_BIND=0|1")
    command = (*pairs, vllm, "serve", tiny_model, *QUICK, "--tensor-parallel-size", "2")
    ran = run_repro("--start-timeout", "300", *nodes, "--", *command)
    assert ran.code == 0, ran.talk
    assert "comm_group" in ran.document["reached"]
    logs = sorted(path.name for path in Path(ran.document["log"]).parent.iterdir())
    assert logs == ["server-001.log.gz", "server-001.rank1.log.gz"]
    failed = run_repro("--start-timeout", "300", *nodes, "--", *command, "--kv-cache-memory-bytes", "65536")
    assert failure_of(failed)["family"] in {"kv_cache_too_small", "config_invalid"}
    assert failure_of(failed)["detail"].startswith("rank ")
