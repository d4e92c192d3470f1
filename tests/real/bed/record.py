"""Records the real logs that triage is tested on: `python3 tests/real/bed/record.py [SLUG ...]`.

The choice: one case after the other, each with the exact text that vLLM writes and nothing cut; only what names this
machine (paths, host, address) is replaced by neutral words. A case whose log does not hold its root line, or that ends
otherwise than its label claims, is reported and not written. Without arguments only what is not there yet is recorded.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.real.bed.case import API_PORT, MODEL_LENGTH, Case
from tests.real.bed.cases_engine import DEVICE_AND_GROUP, ENGINE, KILLED_AT_START, SERVING
from tests.real.bed.cases_settings import CONFIGURATION, SETTINGS
from tests.real.bed.damaged import DAMAGES, damaged
from tests.real.bed.defects import plant
from tests.real.bed.install import REPOSITORY, install, venv_path, vllm_program
from tests.real.bed.model import make_tiny
from tests.real.bed.server import Server

LOGS = REPOSITORY / "tests" / "unit" / "triage" / "logs"
LARGEST = 60_000
CASES = (*CONFIGURATION, *SETTINGS, *ENGINE, *SERVING, *DEVICE_AND_GROUP, *KILLED_AT_START)
QUICK = {
    "OMP_NUM_THREADS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}
COMMON = {
    "--host": ("127.0.0.1",),
    "--max-model-len": (str(MODEL_LENGTH),),
    "--enforce-eager": (),
    "--kv-cache-memory-bytes": ("67108864",),
}


class NotAsLabelled(Exception):
    """The launch went otherwise than its label says."""


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise NotAsLabelled(what)


def answers_then_stopped(server: Server) -> None:
    _expect(server.complete(20).status == 200, "no answer")


def refuses_too_long(server: Server) -> None:
    _expect(server.complete(MODEL_LENGTH + 1).status == 400, "a prompt over the length was not refused")
    _expect(server.request("/v1/completions", {"model": "nope", "prompt": "x"}).status == 404, "unknown model served")
    _expect(server.complete(20).status == 200, "no answer")


def crosses_300(server: Server) -> None:
    _expect(server.complete(299).status == 200, "299 tokens failed")
    _expect(server.complete(300).status == 500, "300 tokens passed")
    _expect(server.wait_end(30) is not None, "the server lives on")


def engine_killed(server: Server) -> None:
    answers_then_stopped(server)
    server.kill_member("EngineCore")
    _expect(server.wait_end(30) is not None, "the server lives on")


def asks_for_16(server: Server) -> None:
    _expect(server.complete(20, max_tokens=16).status == 500, "16 tokens were answered")
    _expect(server.wait_end(30) is not None, "the server lives on")


def worker_killed(server: Server) -> None:
    _expect(server.complete(20).status == 200, "no answer")
    server.kill_member("Worker_TP1")
    _expect(server.wait_end(60) is not None, "the server lives on")


def first_request_fails(server: Server) -> None:
    _expect(server.complete(20).status == 500, "the first request was answered")
    _expect(server.wait_end(60) is not None, "the server lives on")


AFTER: dict[str, Callable[[Server], None]] = {
    after.__name__: after
    for after in (
        *(answers_then_stopped, refuses_too_long, crosses_300, engine_killed, asks_for_16, worker_killed),
        first_request_fails,
    )
}


@contextlib.contextmanager
def _held(port: int | None) -> Iterator[None]:
    """Somebody else listens on a port meanwhile. OSError when somebody does already."""
    if port is None:
        yield
        return
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        holder.listen()
        yield


def _model(case: Case, tiny: Path, scratch: Path) -> str:
    if case.model == "tiny":
        return str(tiny)
    return str(damaged(case.model, tiny, scratch / "models")) if case.model in DAMAGES else case.model


def neutral(text: str, scratch: Path, tiny: Path) -> str:
    """The log without what names this machine. Longest paths first, since some lie within others."""
    words = {
        str(tiny): "/models/tiny",
        **{str(scratch / "models" / damage): "/models/tiny" for damage in DAMAGES},  # its name would give it away
        str(scratch / "tmp"): "/tmp",
        str(scratch): "/srv/run",
        str(venv_path()): "/opt/vllm",
        str(Path(sysconfig.get_paths()["stdlib"]).parents[1]): "/usr/local",
        str(REPOSITORY): "/srv/repro",
        str(Path.home() / ".cache"): "/home/user/.cache",
        socket.gethostname(): "node0",
    }
    with contextlib.suppress(OSError):
        words[socket.gethostbyname(socket.gethostname())] = "127.0.0.1"
    for old in sorted(words, key=len, reverse=True):
        text = text.replace(old, words[old])
    return text


def _common(case: Case) -> list[str]:
    """The settings that every case shares, without those that the case sets itself: vLLM notes a flag given twice."""
    own = {*case.args, *(f"--{word[5:]}" for word in case.args if word.startswith("--no-"))}
    if "VLLM_CPU_KVCACHE_SPACE" in case.env:
        own.add("--kv-cache-memory-bytes")
    return [word for flag, values in COMMON.items() if flag not in own for word in (flag, *values)]


def _command(case: Case, env: dict[str, str], argv: list[str]) -> str:
    settings = [f"{name}={value}" for name, value in env.items()]
    return " ".join([*settings, *case.prefix, "vllm", *argv[len(case.prefix) + 1 :], "--port", str(API_PORT)])


def _ended(case: Case, server: Server) -> int | None:
    """Lets the case run its course; the exit code as the outside sees it, None where it had to be killed."""
    if case.then:
        server.wait_ready(case.hang)
        AFTER[case.then](server)
        return server.stop()
    struck = 0
    deadline = time.monotonic() + case.hang
    while (code := server.wait_end(0.5)) is None and time.monotonic() < deadline:
        text = server.text()
        _expect("Application startup complete" not in text, "the server became ready")
        if case.strike and case.strike in text and not struck:
            struck = server.kill_member("Worker_TP1")
    _expect(code is not None or case.family == "hang", f"the server was still running after {case.hang:.0f} s")
    server.stop()
    return code


def record(case: Case, tiny: Path) -> dict[str, object]:
    """Runs one case, writes its log and returns its label. Errors: NotAsLabelled, AssertionError."""
    with tempfile.TemporaryDirectory(prefix="repro-record-") as temporary:
        scratch = Path(temporary)
        for folder in ("models", "tmp"):
            (scratch / folder).mkdir()
        env = {**QUICK, **{name: value.replace("{fresh}", temporary) for name, value in case.env.items()}}
        for name, content in case.site.items():
            (scratch / "site" / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / "site" / name).write_text(content)
            env["PYTHONPATH"] = str(scratch / "site")
        if case.defects:
            env.update(plant(scratch / "site", case.defects))
        env = {name: value for name, value in env.items() if value}
        argv = [*case.prefix, str(vllm_program()), "serve", _model(case, tiny, scratch), *_common(case), *case.args]
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        inherited["TMPDIR"] = str(scratch / "tmp")  # vLLM leaves its sockets behind
        with _held(case.listen), Server(argv, {**inherited, **env}, scratch / "log", API_PORT, scratch) as server:
            code = _ended(case, server)
            log = neutral(server.text(), scratch, tiny)
        _expect(len(log.encode()) <= LARGEST, f"the log has {len(log.encode())} bytes")
        lines = log.split("\n")
        found = next((number for number, line in enumerate(lines, 1) if case.root and case.root in line), None)
        keep = Path(tempfile.gettempdir()) / f"repro-record-{case.slug}.log"
        if case.root and found is None:
            shutil.copyfile(scratch / "log", keep)
            raise NotAsLabelled(f"no line holds {case.root!r}; its log is kept in {keep}")
        _expect(
            found is None or "non-default args" not in lines[found - 1], "the root text is one of the arguments too"
        )
        (LOGS / f"{case.slug}.log").write_bytes(log.encode())
        return {
            "stage": case.stage,
            "family": case.family,
            "root_line_contains": case.root or None,
            "root_line_no": found,
            "alternatives": list(case.alt),
            "exit_code": code,
            "model": case.model,
            "command": neutral(_command(case, env, argv), scratch, tiny),
        }


def main(wanted: list[str]) -> int:
    # A plain end would leave the server behind; this one goes through its `with`.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with _held(API_PORT):
        pass  # an OSError here: another recorder, or someone else's server, is on the port
    install()
    tiny = make_tiny()
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / "labels.json"
    labels = json.loads(path.read_text()) if path.exists() else {}
    failed = 0
    for case in CASES:
        if case.slug not in wanted if wanted else case.slug in labels:
            continue
        began = time.monotonic()
        try:
            labels[case.slug] = record(case, tiny)
        except (NotAsLabelled, AssertionError) as problem:
            failed += 1
            print(f"{case.slug}: NOT RECORDED: {problem}", flush=True)
            continue
        path.write_text(json.dumps(labels, indent=1, sort_keys=True) + "\n")
        code, line = labels[case.slug]["exit_code"], labels[case.slug]["root_line_no"]
        print(f"{case.slug}: exit {code}, root line {line}, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
