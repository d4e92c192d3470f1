"""What real tests are given: the counted `vllm` program, the tiny model, planted defects, a quick server's environment.

The choice: one ledger for the whole run. A run that used more launches than its budget fails, whatever its tests say,
since launches are what the search is judged by and what makes these tests slow.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.bed.damaged import damaged
from tests.real.bed.defects import Defect, plant
from tests.real.bed.install import REPOSITORY, is_installed, venv_path, vllm_program
from tests.real.bed.launches import BUDGET_VARIABLE, Ledger, budget
from tests.real.bed.model import make_tiny
from tests.real.bed.server import Server, free_port

HERE = Path(__file__).parent
LEDGER = pytest.StashKey[Ledger]()
# A healthy launch takes 18 s, 45 s with two ranks; a search makes up to a dozen of them.
SECONDS_PER_TEST = 900
Planted = Callable[..., dict[str, str]]
StartServer = Callable[..., Server]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is real, and slower than the limit that other tests have."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("real")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SECONDS_PER_TEST))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    ledger = session.config.stash.get(LEDGER, None)
    if ledger is not None and ledger.count > budget() and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    ledger = config.stash.get(LEDGER, None)
    if ledger is None:
        return
    used, allowed = ledger.count, budget()
    terminalreporter.write_line(f"real vLLM launches: {used} of {allowed} allowed", red=used > allowed, bold=True)
    if used > allowed:
        terminalreporter.write_line(f"the run fails for that alone; {BUDGET_VARIABLE} sets another budget", red=True)


@pytest.fixture(scope="session")
def ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    """Every launch of this run; skips when there is no real vLLM to launch."""
    if not is_installed():
        pytest.skip(f"no real vLLM in {venv_path()}; python3 tests/real/bed/install.py puts it there (about 2 minutes)")
    ledger = Ledger(tmp_path_factory.mktemp("launches"), vllm_program())
    request.config.stash[LEDGER] = ledger
    return ledger


@pytest.fixture
def vllm(ledger: Ledger) -> Path:
    """The counted `vllm` program. A test that begins beyond the budget fails at once."""
    if ledger.count >= budget():
        pytest.fail(f"the run's {budget()} launches are used up ({BUDGET_VARIABLE} sets another budget)")
    return ledger.program


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    return make_tiny()


@pytest.fixture
def damaged_model(tiny_model: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Makes a copy of the tiny model with one damage of bed.damaged.DAMAGES."""
    return lambda damage: damaged(damage, tiny_model, tmp_path / "models")


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    """Plants defects into the installation; returns what the server's environment needs on top."""

    def plant_them(*defects: Defect) -> dict[str, str]:
        return plant(tmp_path / "defect", defects)

    return plant_them


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A temporary directory with a short path: vLLM leaves its sockets there, whose paths may have 107 characters."""
    with tempfile.TemporaryDirectory(prefix="real-") as directory:
        yield Path(directory)


@pytest.fixture
def server_environment(tmp_path: Path, short_directory: Path) -> dict[str, str]:
    """The whole environment of a server that starts quickly, asks nobody outside and leaves its caches with the bed.

    `VLLM_ENABLE_V1_MULTIPROCESSING=0` saves a process and 10 s; a test of workers overrides it.
    """
    cache = REPOSITORY / ".real" / "cache"
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **kept,
        "HOME": str(tmp_path),
        "TMPDIR": str(short_directory),
        "OMP_NUM_THREADS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(cache / "hf"),
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
    }


@pytest.fixture
def quick_flags() -> tuple[str, ...]:
    """Flags of a server that is ready in about 18 s and takes 64 MiB for its cache."""
    return ("--host", "127.0.0.1", "--max-model-len", "1024", "--enforce-eager", "--kv-cache-memory-bytes", "67108864")


@pytest.fixture
def start_server(
    vllm: Path, tiny_model: Path, quick_flags: tuple[str, ...], server_environment: dict[str, str], tmp_path: Path
) -> Iterator[StartServer]:
    """Starts a real server directly, without repro; what is still there at the end of the test is ended."""
    started: list[Server] = []

    def start(*flags: str, env: dict[str, str] | None = None, model: Path | None = None) -> Server:
        argv = [str(vllm), "serve", str(model or tiny_model), *quick_flags, *flags]
        log = tmp_path / f"server-{len(started)}.log"
        started.append(Server(argv, {**server_environment, **(env or {})}, log, free_port(), tmp_path))
        return started[-1]

    yield start
    for server in started:
        server.stop()
