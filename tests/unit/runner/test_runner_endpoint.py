"""A server that somebody else runs: attached to, never started, never stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.domain.command import parse
from repro.domain.launch import Launch
from repro.domain.variable import Kind, Variable
from repro.errors import UsageError
from repro.runner.endpoint import EndpointEngine, must_be_request_variables
from repro.runner.port import Place

LAUNCH = Launch(parse("vllm serve m"))


def test_it_attaches_and_leaves_the_server_alone(tmp_path: Path) -> None:
    engine = EndpointEngine("http://10.0.0.7:8000/base/v1/")
    for number in (1, 2):
        server = engine.start(LAUNCH, Place(tmp_path / "servers", tmp_path / f"{number}.log"))
        assert server.base_url == "http://10.0.0.7:8000/base"
        assert server.exit_evidence() is None
        assert server.log.read_bytes() == b""
        server.stop()
        assert server.exit_evidence() is None
    assert not (tmp_path / "servers").exists(), "nothing is on record that a sweep could end"


def test_another_launch_is_refused(tmp_path: Path) -> None:
    engine = EndpointEngine("https://host")
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
