"""`repro snapshot` of real containers: running, ended, removed, with a moved tag; and with no daemon at all.

A script takes vLLM's place in the container: it prints a recorded start-up with secrets in it, and stays or ends.
"""

from __future__ import annotations

import gzip
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from repro.machine.docker_port import ASIDE_LABEL
from repro.snapshot.schema import snapshot_schema
from tests.integration.docker_bed import ROOT, docker, no_daemon, thin_image

HEALTHY = ROOT / "tests/unit/triage/logs/healthy-refused-requests.log"
FAILED = ROOT / "tests/unit/triage/logs/kv-cache-64k.log"
SECRETS = {
    "hub token": "hf_" + "zY9xW7vU5tS3rQ1pN8mL6kJ4hG2f",
    "key in argv": "the-key-that-clients-send",
    "key in the log": "sk-proj-" + "Z9y8X7w6V5u4T3s2R1q0",
    "variable of no group": "a-private-word",
}
SCRIPT = """#!/bin/sh
cat /bed/start.log
echo "(APIServer pid=1) INFO 12-01 15:07:48 [x.py:1] key {key}"
[ -e /bed/stay ] && exec sleep 300
exit 3
"""


@dataclass(frozen=True)
class Bed:
    """An image, and a folder that containers see as /bed and snapshots are taken in."""

    image: str
    folder: Path
    begun: list[str]

    def start(self, log: Path, *options: str, stay: bool = False) -> str:
        """A container that begins as a server did whose log this is; returns its name."""
        (self.folder / "start.log").write_bytes(log.read_bytes())
        (self.folder / "stay").touch() if stay else (self.folder / "stay").unlink(missing_ok=True)
        name = f"repro-snap-{secrets.token_hex(4)}"
        self.begun.append(name)
        mounts = ("--volume=/usr:/usr:ro", f"--volume={self.folder}:/bed:ro", f"--volume={self.folder}/model:/model:ro")
        environment = (
            "--env=PATH=/bed/bin:/usr/bin:/bin",
            f"--env=HF_TOKEN={SECRETS['hub token']}",
            f"--env=MOOD={SECRETS['variable of no group']}",
            "--env=NCCL_DEBUG=WARN",
        )
        command = ("vllm", "serve", "/model", "--api-key", SECRETS["key in argv"], "--max-model-len", "1024")
        docker("run", "--detach", f"--name={name}", *mounts, *environment, *options, self.image, *command)
        return name

    def snapshot(self, *words: str, **environment: str) -> dict[str, Any]:
        """What `repro snapshot --json` tells, once it has ended well."""
        done = subprocess.run(
            [sys.executable, "-m", "repro", "snapshot", "--json", *words],
            cwd=self.folder / "work",
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    if reason := no_daemon():
        pytest.skip(reason)
    with thin_image() as reference:
        yield reference


@pytest.fixture
def bed(image: str, tmp_path: Path) -> Iterator[Bed]:
    yield from made(image, tmp_path)


def made(image: str, folder: Path) -> Iterator[Bed]:
    for name in ("bin", "model", "work/.repro"):
        (folder / name).mkdir(parents=True)
    (folder / "model/config.json").write_text("{}")
    program = folder / "bin/vllm"
    program.write_text(SCRIPT.format(key=SECRETS["key in the log"]))
    program.chmod(0o755)
    bed = Bed(image, folder, [])
    yield bed
    with ExitStack() as stack:
        for name in bed.begun:
            stack.callback(subprocess.run, ["docker", "rm", "--force", name], capture_output=True, timeout=60)


def value(document: dict[str, Any], name: str) -> Any:
    group, short = name.split(".")
    fact = document["facts"][group][short]
    assert fact["label"] != "unavailable", fact
    return fact["value"]


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


def shape(name: str) -> dict[str, Any]:
    """What a container is; the daemon tells mounts in any order and remembers programs that have run inside a while."""
    facts: dict[str, Any] = json.loads(docker("inspect", name))[0]
    mounts = sorted(facts["Mounts"], key=lambda mount: str(mount["Destination"]))
    return {**facts, "Mounts": mounts, "ExecIDs": None}


def written(document: dict[str, Any]) -> dict[str, bytes]:
    files = {name: (Path(document["folder"]) / name).read_bytes() for name in document["files"]}
    return {**files, "server.log.gz": gzip.decompress(files["server.log.gz"])}


@pytest.mark.docker
def test_a_running_container(bed: Bed) -> None:
    name = bed.start(HEALTHY, "--memory=256m", "--shm-size=32m", "--label=site=here", stay=True)
    until(lambda: "key sk-" in docker("logs", name))
    before = shape(name)
    document = bed.snapshot("--container", name)

    assert document["triage"]["stage"] == "none"
    assert value(document, "container.state")["running"] is True
    assert value(document, "container.limits")["memory"] == 256 << 20
    assert value(document, "container.limits")["shm_size"] == 32 << 20
    assert value(document, "container.image") == bed.image
    assert value(document, "container.image_id") == json.loads(docker("image", "inspect", bed.image))[0]["Id"]
    assert value(document, "container.tag_now")["same"] is True
    assert value(document, "container.docker")["containerd"]
    assert value(document, "container.runtime")["used"] == "runc"
    assert value(document, "container.environment")["NCCL_DEBUG"] == "WARN"
    assert value(document, "process.argv")[:2] == ["sleep", "300"], "the process on this host"
    assert value(document, "host.cgroup_memory_limit")["bytes"] == 256 << 20
    assert value(document, "inside.python")
    assert value(document, "model_files.path") == str(bed.folder / "model")
    assert value(document, "configuration.arguments")["--max-model-len"] == "1024"
    assert value(document, "serving.requests")["answered"] == {"200": 3, "400": 1, "404": 1}
    assert shape(name) == before, "nothing was changed"
    assert document["warnings"] == []

    files = written(document)
    assert files["server.log.gz"].count(b"\n") == HEALTHY.read_bytes().count(b"\n") + 1
    for place, secret in SECRETS.items():
        assert not [file for file, content in files.items() if secret.encode() in content], place
    jsonschema.validate(json.loads(files["fingerprint.json"]), snapshot_schema("fingerprint"))
    jsonschema.validate(json.loads(files["snapshot.json"]), snapshot_schema("snapshot"))


@pytest.mark.docker
def test_an_ended_container_and_its_image_asked_aside(bed: Bed) -> None:
    name = bed.start(FAILED)
    docker("wait", name)
    document = bed.snapshot("--container", name)
    assert (document["triage"]["stage"], document["triage"]["family"]) == ("engine_init", "kv_cache_too_small")
    assert value(document, "container.state")["exit_code"] == 3
    assert "--inside" in document["missing"]["inside.vllm"]
    assert "self-built" in document["checked"]["broken"][0]
    assert document["next"].startswith("repro check (no launch) and mend what is broken, then repro bisect --container")
    assert "launches" in document["next"]

    asked = bed.snapshot("--container", name, "--inside", "--change", "a larger cache")
    assert value(asked, "inside.python")
    assert asked["missing"]["inside.vllm"] == "a throw-away container of the same image does not have it"
    left = docker("ps", "--all", "--quiet", "--filter", f"label={ASIDE_LABEL}", "--filter", f"ancestor={bed.image}")
    assert left == ""
    assert asked["previous"] == document["id"]
    assert value(asked, "command.change") == "a larger cache"
    assert [found["name"] for found in asked["changed"] if found["pinned"]] == [
        "inside.build",
        "inside.packages_sha256",
    ]


@pytest.mark.docker
def test_a_tag_that_was_moved_meanwhile(bed: Bed) -> None:
    tag = f"repro-moved:{secrets.token_hex(4)}"
    docker("tag", bed.image, tag)
    try:
        name = Bed(tag, bed.folder, bed.begun).start(HEALTHY, stay=True)
        docker("rmi", tag)
        assert value(bed.snapshot("--container", name, "--no-inside"), "container.tag_now")["image_id"] is None
        with thin_image() as other:
            docker("import", "--change", "LABEL other=yes", "-", tag, stdin=b"\0" * 10240)
            assert other != tag
            moved = value(bed.snapshot("--container", name, "--no-inside"), "container.tag_now")
        assert moved["same"] is False
        assert moved["image_id"] not in (None, json.loads(docker("inspect", name))[0]["Image"])
    finally:
        docker("rm", "--force", bed.begun[-1])
        subprocess.run(["docker", "rmi", "--force", tag], capture_output=True, timeout=60, check=False)


@pytest.mark.docker
def test_a_container_that_removed_itself_is_named(bed: Bed) -> None:
    name = bed.start(FAILED, "--rm")
    until(lambda: name not in docker("ps", "--all", "--format", "{{.Names}}"))
    document = bed.snapshot("--container", name)
    assert document["subject"] == f"container {name} (removed)"
    for missing in ("container.argv", "log.copy", "triage.diagnosis"):
        assert "was removed after exit code 3" in document["missing"][missing]
        assert f"journalctl CONTAINER_NAME={name}" in document["missing"][missing]
    assert value(document, "host.kernel")
    assert value(document, "container.docker")


@pytest.mark.docker
def test_a_restarted_container_is_named(bed: Bed) -> None:
    name = bed.start(FAILED, "--restart=on-failure:2")
    until(lambda: json.loads(docker("inspect", name))[0]["RestartCount"] == 2)
    docker("wait", name)
    document = bed.snapshot("--container", name, "--no-inside")
    assert "Docker has restarted it 2 times" in value(document, "container.restarted")
    assert "all launches one after the other" in value(document, "log.elsewhere")


def test_a_stopped_daemon_still_ends_in_a_whole_snapshot(tmp_path: Path) -> None:
    bed = next(made("", tmp_path))
    document = bed.snapshot(
        "--container", "prod", "--source", str(tmp_path), DOCKER_HOST=f"unix://{tmp_path}/none.sock"
    )
    assert "Docker does not answer" in document["missing"]["container.argv"]
    assert "root or the group docker" in document["missing"]["log.copy"]
    (tree,) = value(document, "source.trees")
    assert tree["path"] == str(tmp_path)
    assert value(document, "host.kernel")
