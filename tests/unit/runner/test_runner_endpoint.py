"""A server that somebody else runs: attached to, never started, never stopped."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro.domain.command import parse
from repro.domain.launch import Launch
from repro.domain.variable import Kind, Variable
from repro.errors import EXIT_COULD_NOT_TEST, ReproError, UsageError
from repro.runner.endpoint import EndpointEngine, must_be_request_variables
from repro.runner.port import Place

LAUNCH = Launch(parse("vllm serve m"))


@pytest.fixture
def listening() -> Iterator[str]:
    """host:port of a server that somebody else runs."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_it_attaches_and_leaves_the_server_alone(tmp_path: Path, listening: str) -> None:
    engine = EndpointEngine(f"http://{listening}/base/v1/")
    ids = set()
    for number in (1, 2):
        server = engine.start(LAUNCH, Place(tmp_path / "servers", tmp_path / f"{number}.log"))
        ids.add(server.id)
        assert server.base_url == f"http://{listening}/base"
        assert server.exit_evidence() is None
        assert server.log.read_bytes() == b""
        server.stop()
        assert server.exit_evidence() is None
    assert len(ids) == 1, "it is always the same server"
    assert not (tmp_path / "servers").exists(), "nothing is on record that a sweep could end"


def test_an_address_where_nobody_listens_says_nothing_about_settings(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with pytest.raises(ReproError, match="Nobody answers") as raised:
        EndpointEngine(f"http://127.0.0.1:{port}").start(LAUNCH, Place(tmp_path, tmp_path / "1.log"))
    assert raised.value.exit_code == EXIT_COULD_NOT_TEST


def test_another_launch_is_refused(tmp_path: Path, listening: str) -> None:
    engine = EndpointEngine(f"https://{listening}")
    engine.start(LAUNCH, Place(tmp_path, tmp_path / "1.log"))
    with pytest.raises(UsageError, match="other settings"):
        engine.start(Launch(parse("vllm serve m --seed 1")), Place(tmp_path, tmp_path / "2.log"))


@pytest.mark.parametrize("wrong", ["host:8000", "ftp://host", "http://", ""])
def test_what_is_no_address_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        EndpointEngine(wrong)


def test_variables_that_need_a_launch_are_named() -> None:
    tokens = Variable("input_tokens", Kind.REQUEST, 1, 9, ordinal=True)
    must_be_request_variables([tokens])
    with pytest.raises(UsageError, match=r"--seed, env:A"):
        must_be_request_variables(
            [tokens, Variable("--seed", Kind.LAUNCH, None, "1"), Variable("env:A", Kind.LAUNCH, None, "1")]
        )
