"""The one contract of engines, on processes and on containers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro.domain.command import Command
from repro.domain.launch import Launch
from repro.machine.processes import with_environment_mark
from repro.runner.container_command import LABEL
from repro.runner.docker import DockerEngine
from repro.runner.process import ProcessEngine, StopTimes
from repro.runner.record import MARK
from tests.integration.docker_bed import container, docker, no_daemon, thin_image
from tests.integration.engine_contract import CLOCK, QUICK, EngineContract

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def make_engine() -> DockerEngine | ProcessEngine:
    """For the owner process: `more` is an image for containers, and empty for processes."""
    return DockerEngine(CLOCK) if len(sys.argv) > 4 and sys.argv[4] else ProcessEngine(CLOCK)


def make_launch(script: Path, mode: str, image: str) -> Launch:
    box = container(image, mounted=(script.parent,)) if image else None
    return Launch(Command((sys.executable, str(script)), "m", container=box), environment=(("MODE", mode),))


class TestProcess(EngineContract):
    module = "test_runner_contract"
    launch_s = 0.05

    def engine(self, times: StopTimes = QUICK) -> ProcessEngine:
        return ProcessEngine(CLOCK, stop_times=times)

    def launch(self, script: Path, mode: str) -> Launch:
        return make_launch(script, mode, "")

    def remains(self, record_id: str) -> bool:
        return bool(with_environment_mark(MARK, record_id))

    def more(self) -> str:
        return ""


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if reason := no_daemon():
        pytest.skip(reason)
    with thin_image() as reference:
        yield reference


@pytest.mark.docker
class TestDocker(EngineContract):
    module = "test_runner_contract"
    launch_s = 1.5

    @pytest.fixture(autouse=True)
    def _bed(self, image: str) -> None:
        self.image = image

    def engine(self, times: StopTimes = QUICK) -> DockerEngine:
        return DockerEngine(CLOCK, stop_times=times)

    def launch(self, script: Path, mode: str) -> Launch:
        return make_launch(script, mode, self.image)

    def remains(self, record_id: str) -> bool:
        return bool(docker("ps", "--all", "--quiet", "--filter", f"label={LABEL}={record_id}"))

    def more(self) -> str:
        return self.image
