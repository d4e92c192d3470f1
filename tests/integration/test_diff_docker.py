"""`repro diff` and `repro check` on containers of a real daemon: one tag, two images."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from repro.cli.main import run
from tests.integration.docker_bed import container, docker, no_daemon, thin_image

pytestmark = [pytest.mark.docker, pytest.mark.skipif(no_daemon() is not None, reason=str(no_daemon()))]

SERVER = (sys.executable, "-m", "repro.simulator", "serve", "Qwen/Qwen3-0.6B", "--port", "8000")
Start = Callable[[str], str]


@pytest.fixture
def images() -> Iterator[tuple[str, str]]:
    """Two images; they go after the containers of `start`, or nameless ones would be left."""
    with thin_image() as first, thin_image() as second:
        yield first, second


@pytest.fixture
def start(images: tuple[str, str]) -> Iterator[Start]:
    """Starts the simulator from an image under a name of its own; all are removed at the end."""
    started: list[str] = []

    def begin(image: str) -> str:
        name = f"repro-diff-{secrets.token_hex(4)}"
        started.append(name)
        root = str(Path(__file__).parents[2])
        options = ("--detach", f"--name={name}", "--network=none", f"--workdir={root}")
        docker(*container(image, *options).argv()[1:], *SERVER)
        return name

    yield begin
    for name in started:
        docker("rm", "--force", name)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = run([*arguments, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def test_one_tag_and_two_images(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    images: tuple[str, str],
    start: Start,
) -> None:
    monkeypatch.chdir(tmp_path)
    tag = f"repro-moving:{secrets.token_hex(4)}"
    ids = []
    try:
        for image in images:
            docker("tag", image, tag)
            code, taken = asked(capsys, "snapshot", "--no-inside", "--container", start(tag))
            assert code == 0
            ids.append(taken["id"])
    finally:
        docker("rmi", "--force", tag)
    code, found = asked(capsys, "diff", *ids)
    assert code == 0
    assert found["cases"][0]["id"] == "same_tag_other_image"
    assert found["moved"] == ["image"], found["groups"]
    code, chain = asked(capsys, "check", ids[1])
    assert code == 4
    assert (chain["first_broken"], chain["headline"]["id"]) == ("image_build", "image.self_built")
    assert chain["origin"] == "self-built"
