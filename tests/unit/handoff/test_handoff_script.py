"""reproduce.sh without a real server: its words, its checks before anything is started, how it judges."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from repro.domain.command import parse
from repro.handoff.bundle import write_bundle
from repro.handoff.case import read_case
from repro.handoff.script import command_text, curl_sh, reproduce_sh
from repro.redact.redactor import Redactor

NASTY = ["it's", 'a "b" $HOME `id`', "two\nlines", "*", "\\", "-x", "~", "é|;&"]
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="reproduce.sh needs curl")


@dataclass(frozen=True)
class Script:
    folder: Path
    text: str

    def run(self, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        words = ["sh", str(self.folder / "reproduce.sh"), *options]
        base = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        return subprocess.run(
            words, env={**base, **environment}, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )


def script_of(session: Any, folder: Path, requests: Mapping[str, tuple[str, ...]] | None = None) -> Script:
    """The script of a session whose bodies are named as `requests` says, in a folder of its own."""
    case = read_case(session.folder, session.events, session.scene)
    names = {side.id: ("request.json",) for side in case.sides} if requests is None else requests
    text = reproduce_sh(case, names, Redactor())
    folder.mkdir()
    (folder / "reproduce.sh").write_text(text, encoding="utf-8")
    (folder / "request.json").write_text("{}", encoding="utf-8")
    return Script(folder, text)


@pytest.fixture
def here(found: Any, tmp_path: Path) -> Script:
    """The script on a machine that has the program and the model."""
    (tmp_path / "model").mkdir()
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    program.chmod(0o755)
    words = [str(program), "serve", str(tmp_path / "model")]
    production = replace(found.scene.production, program=tuple(words[:2]), model=words[2])
    minimal = replace(found.scene.minimal, program=tuple(words[:2]), model=words[2])
    scene = replace(found.scene, production=production, minimal=minimal)
    return script_of(replace(found, scene=scene), tmp_path / "unpacked")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield int(server.getsockname()[1])


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_the_shell_can_read_it(any_session: tuple[str, Any], tmp_path: Path) -> None:
    _, session = any_session
    write_bundle(session.folder, session.events, session.scene, Redactor(), tmp_path / "x.tar.gz")
    shutil.unpack_archive(tmp_path / "x.tar.gz", tmp_path / "out")
    (top,) = (tmp_path / "out").iterdir()
    for name in ("reproduce.sh", "curl.sh"):
        subprocess.run(["sh", "-n", str(top / name)], check=True, timeout=20)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing(any_session: tuple[str, Any], tmp_path: Path) -> None:
    _, session = any_session
    case = read_case(session.folder, session.events, session.scene)
    script = script_of(session, tmp_path / "unpacked")
    (script.folder / "curl.sh").write_text(curl_sh(case.pairs[0].failing, ("a.json", "b.json")), encoding="utf-8")
    files = [str(script.folder / name) for name in ("reproduce.sh", "curl.sh")]
    done = subprocess.run(["shellcheck", *files], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def test_every_argument_reaches_the_program_as_it_is(found: Any, tmp_path: Path) -> None:
    """`start` is run with a program that prints its arguments and environment, one a line."""
    show = tmp_path / "show"
    show.write_text('#!/bin/sh\nfor word in "$@"; do printf "<%s>\\n" "$word"; done\nenv\n', encoding="utf-8")
    show.chmod(0o755)
    command = parse(["vllm", "serve", "m", *(word for value in NASTY for word in ("--served-model-name", value))])
    scene = replace(found.scene, minimal=command, production=command, variables=(), environment=(("NAME", "a 'b' $c"),))
    case = read_case(found.folder, found.events, found.scene)
    launch = replace(scene.launch(scene.production_configuration), environment_from=("HF_TOKEN",))
    launch = replace(launch, command=replace(launch.command, program=(str(show), "serve")))
    side = replace(case.pairs[0].failing, launch=launch)
    whole = reproduce_sh(replace(case, pairs=(replace(case.pairs[0], failing=side, passing=None),)), {}, Redactor())
    sides, body = whole.split("# ---- what follows")
    functions = body.split("HERE=")[0].partition("\n")[2]
    run = f"{sides}\n{functions}\nPORT=4711\nOWN_SESSION=''\nside_1\nstart\n"
    environment = {"PATH": os.environ["PATH"], "HF_TOKEN": "secret-value", "LEAK": "x", "PORT": "1", "TZ": "UTC"}
    done = subprocess.run(["sh", "-c", run], env=environment, capture_output=True, text=True, timeout=20, check=True)
    told = [word for value in NASTY for word in ("--served-model-name", value)]
    words = ["serve", "m", *told, "--host", "127.0.0.1", "--port", "4711"]
    assert done.stdout.startswith("".join(f"<{word}>\n" for word in words))
    variables = set(done.stdout.split("<4711>\n")[1].splitlines())
    assert {"NAME=a 'b' $c", "HF_TOKEN=secret-value", "TZ=UTC"} <= variables
    assert not {line.split("=")[0] for line in variables} & {"LEAK", "PORT"}
    assert "secret-value" not in whole


@needs_curl
def test_what_is_missing_is_named_before_anything_is_started(here: Script, tmp_path: Path, taken: int) -> None:
    done = here.run()
    assert (done.returncode, done.stderr) == (
        125,
        "could not test: the environment variable HF_TOKEN is not set; export it, it is passed to the server\n",
    )
    done = here.run(HF_TOKEN="x", PORT=str(taken))
    assert done.returncode == 125
    assert f"port {taken} of 127.0.0.1 is in use" in done.stderr
    (tmp_path / "model").rmdir()
    done = here.run(HF_TOKEN="x")
    assert done.returncode == 125
    assert f"{tmp_path / 'model'} (the model) is not here" in done.stderr
    (tmp_path / "vllm").unlink()
    done = here.run(HF_TOKEN="x")
    assert done.returncode == 125
    assert f"the program {tmp_path / 'vllm'} is not on this machine" in done.stderr


@needs_curl
def test_a_server_that_ends_before_it_is_ready_is_a_failure(here: Script) -> None:
    done = here.run(HF_TOKEN="x", PORT=free_port())
    assert done.returncode == 1
    assert "the server ended by itself with status 3" in done.stdout
    assert "reproduced: the server ended before it was ready" in done.stdout
    assert "the root line of the report is not in this log" in done.stdout
    done = here.run("--passing", "input_tokens", HF_TOKEN="x", PORT=free_port())
    assert done.returncode == 1
    assert "failed: the server ended before it was ready" in done.stdout


@needs_curl
def test_sides_are_chosen_by_name(here: Script) -> None:
    assert here.run("--list").stdout == "input_tokens\nprefix_caching\n"
    done = here.run("--passing", HF_TOKEN="x")
    assert (done.returncode, done.stderr) == (2, "name one of the pairs: input_tokens, prefix_caching\n")
    assert here.run("--nonsense").returncode == 2
    assert here.run("--help").stdout.startswith("usage: sh reproduce.sh")


@needs_curl
def test_without_a_kept_request_nothing_is_started(here: Script) -> None:
    text = here.text.replace("REQUESTS=request.json", "REQUESTS=''")
    (here.folder / "reproduce.sh").write_text(text, encoding="utf-8")
    done = here.run(HF_TOKEN="x", PORT=free_port())
    assert done.returncode == 125
    assert "the request of this trial was not kept" in done.stderr


def test_the_key_of_the_server_is_no_argument(found: Any) -> None:
    case = read_case(found.folder, found.events, found.scene)
    failing = case.pairs[0].failing
    launch = replace(failing.launch, environment_from=("VLLM_API_KEY",))
    side = replace(failing, launch=launch)
    text = curl_sh(side, ("request.json",))
    assert "curl --noproxy '*' -K - " in text
    assert "-H 'Authorization" not in text
    script = reproduce_sh(replace(case, pairs=(replace(case.pairs[0], failing=side),)), {}, Redactor())
    assert Redactor().text(script) == script
    assert 'Authorization "$VLLM_API_KEY"' in script


def test_the_command_for_people_puts_the_environment_first() -> None:
    command = parse("A=1 vllm serve m --seed 7")
    text = command_text(command, (("A", "fixed"), ("B", "x y")), ("HF_TOKEN",))
    assert text == "# needs in the environment: HF_TOKEN\nB='x y' A=1 vllm serve m --seed 7\n"
