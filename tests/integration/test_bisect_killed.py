"""A search that is killed or interrupted anywhere: no server stays, and a resume ends as if nothing had been."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.cli_bed import MANY_SEQUENCES, Bed, until

FLAGS = ("--max-num-seqs", "64")
SLOW_LAUNCH = {"stage": "weight_access", "family": "hang", "do": "slow", "delay_s": 300}
# The readiness check asks for one token, every trial here for two.
SLOW_REQUEST = {"stage": "serving", "family": "hang", "do": "slow", "delay_s": 300, "when": "max_tokens == 2"}
# Ctrl-C has to end a search while somebody is looking at it.
SOON_S = 12.0


@pytest.fixture(scope="module")
def finding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What the search finds when nobody disturbs it."""
    bed = Bed(tmp_path_factory.mktemp("whole"))
    bed.faults(MANY_SEQUENCES)
    done = bed.repro(*bed.search("--json", flags=FLAGS))
    assert done.code == 0, done.stderr
    yield comparable(done.json)
    bed.close()


def comparable(document: dict[str, Any]) -> Any:
    """What a search has found, without what each run has of its own."""
    (finding,) = document["findings"]
    trials = [(t["id"], t["parent"], t["outcome"], t["family"]) for t in document["trials"]]
    return document["outcome"], finding["variables"], finding["failed"], finding["passed"], finding["proof"], trials


def in_a_launch(bed: Bed) -> subprocess.Popen[str]:
    bed.faults(SLOW_LAUNCH)
    process = bed.start(*bed.search(flags=FLAGS))
    bed.wait_said(process, "comm_group done")
    return process


def in_a_request(bed: Bed, *options: str) -> subprocess.Popen[str]:
    bed.faults(SLOW_REQUEST)
    process = bed.start(*bed.search(*options, flags=FLAGS))
    bed.wait_said(process, "api_ready done")
    until(lambda: any((bed.session / "requests").glob("*.gz")), "a request on its way")
    return process


MOMENTS: dict[str, Callable[[Bed], subprocess.Popen[str]]] = {"launch": in_a_launch, "request": in_a_request}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_search_leaves_no_server_after_the_next_command(bed: Bed, finding: Any, moment: str) -> None:
    process = MOMENTS[moment](bed)
    process.kill()
    process.wait()
    assert bed.servers(), "the server outlives a kill -9 of repro; that is what is to be cleaned"
    bed.faults(MANY_SEQUENCES)
    if moment == "launch":
        cleaned = bed.repro("clean")
        assert cleaned.code == 0, cleaned.stderr
        assert "of an earlier repro that was killed (pids " in cleaned.stdout
        assert bed.servers() == []
    done = bed.resume()
    assert done.code == 0, done.stderr
    assert bed.servers() == []
    assert comparable(done.json) == finding
    raw = [path.name for path in (bed.session / "logs").iterdir() if path.suffix != ".gz"]
    assert raw == [], "logs that the killed repro could not mask are masked now"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupted_search_stops_its_server_and_can_be_resumed(
    bed: Bed, finding: Any, moment: str, number: signal.Signals
) -> None:
    process = MOMENTS[moment](bed)
    begun = time.monotonic()
    process.send_signal(number)
    done = bed.end(process, SOON_S)
    assert time.monotonic() - begun < SOON_S
    assert done.code == 130, done.stderr
    assert "repro bisect --resume" in done.stderr
    assert bed.servers() == []
    assert bed.events[-1]["event"] == "interrupted"
    if number is signal.SIGINT:
        bed.faults(MANY_SEQUENCES)
        again = bed.resume()
        assert comparable(again.json) == finding


def test_ctrl_c_ends_many_hanging_requests_at_once(bed: Bed) -> None:
    process = in_a_request(bed, "--concurrency", "4")
    process.send_signal(signal.SIGINT)
    done = bed.end(process, 5.0)
    assert done.code == 130, done.stderr
    assert bed.servers() == []


def test_a_second_ctrl_c_quits_at_once_and_says_what_is_left(bed: Bed) -> None:
    """A server that cannot obey takes the stop a while; who does not want to wait for it is let go."""
    process = in_a_launch(bed)
    servers = bed.servers()
    assert servers
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    until(lambda: bed.events[-1]["event"] == "interrupted", "the first interrupt")
    process.send_signal(signal.SIGINT)
    done = bed.end(process, 3.0)
    assert done.code == 130, done.stderr
    assert "repro clean" in done.stderr
    assert bed.servers() == servers
    for pid in servers:
        os.kill(pid, signal.SIGCONT)
    assert bed.repro("clean").code == 0
    assert bed.servers() == []
