"""Twenty secrets planted in every place: none in any written byte; look-alikes all there; nothing overwritten."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import git
import pytest

from repro.domain.command import parse
from repro.domain.failure import Family
from repro.domain.fingerprint import Fingerprint
from repro.domain.stage import Stage
from repro.errors import WorkspaceUnusable
from repro.machine.docker_port import Ran
from repro.redact.redactor import Redactor
from repro.session.workspace import Workspace
from repro.snapshot.capture import capture, default_collectors
from repro.snapshot.collector import Context, Series
from repro.snapshot.log import TriageCollector
from repro.snapshot.log_source import FileLog
from repro.snapshot.write import write_snapshot
from repro.triage import Diagnosis, ExitEvidence, Triage
from tests.fakes.docker import FakeDocker, container_facts, image_facts

KEY_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
KNOWN = "the-callers-own-secret"
SECRETS = {
    "known": KNOWN,
    "known base64": base64.b64encode(f"me:{KNOWN}".encode()).decode()[6:-4],
    "hub token in argv": "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9c",
    "api key in argv": "letmein-please",
    "second api key": "open,'sesame",
    "environment of the process": "process-env-secret",
    "AWS variable": "wJalrXUtnFEMI" + "/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "proxy password": "pr0xypass",
    "environment of the command": "command-env-secret",
    "OpenAI key in the log": "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0",
    "AWS id in the log": "AKIA" + "IOSFODNN7EXAMPLE",
    "JWT in the log": "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVPmB92",
    "private key in the log": KEY_BODY,
    "bearer in the log": "abc.def-123456",
    "basic in the log": "dXNlcjpwYXNz",
    "GitHub token in the root line": "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "Slack token in the log": "xoxb-" + "123456789012-abcdefGHIJKL",
    "JSON body in the log": "plain-body-password",
    "remote password": "remote-pass-word",
    "what was changed": "changed-the-password",
    "signed URL in the log": "fe5f80f77d5fa3beca038a248ff027",
    "flag in the minimal command": "minimal-api-key",
    "key in the container's argv": "container-api-key",
    "variable of the container": "container-env-secret",
    "label of the image": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "key in the request": "sk-" + "reqA1b2C3d4E5f6G7h8I9j0K1l2M3n4",
    "password in the diff": "diff-pass-word",
    "password of Prometheus": "prometheus-pass-word",
    "told by a program inside": "hf_" + "iN5iD3pR0gR4mT0lD1tT0u5Aa",
}
LOOK_ALIKES = [
    "max_tokens=4096",
    "token_ids",
    "VLLM_STREAM_TOKEN_THRESHOLD=512",
    "--max-num-batched-tokens",
    "8192",
    "tokenizer=/models/Qwen3",
    "eos_token='<|im_end|>'",
    "k_proj.weight",
    "TOKENIZERS_PARALLELISM",
    "HF_HUB_OFFLINE",
    "cache_key: 4f0c1b2a9d8e7f6a5b4c3d2e1f0a9b8c",
    "--tokenizer-mode",
]


CONTAINER_KEY = "key in the container's argv"


def log_text() -> str:
    s = SECRETS
    return "\n".join(
        [
            f"INFO started by {s['api key in argv']} and {s['second api key']}, {s['environment of the process']}",
            f"Authorization: Bearer {s['bearer in the log']}",
            f"authorization: Basic {s['basic in the log']}",
            f"auth {base64.b64encode(f'me:{KNOWN}'.encode()).decode()} {KNOWN} {s['AWS variable']}",
            f"(EngineCore pid=1) key {s['OpenAI key in the log']} {s['AWS id in the log']} {s['JWT in the log']}",
            "(EngineCore pid=1) -----BEGIN RSA PRIVATE KEY-----",
            f"(EngineCore pid=1) {KEY_BODY}",
            "(EngineCore pid=1) -----END RSA PRIVATE KEY-----",
            f'hook {s["Slack token in the log"]} body {{"password": "{s["JSON body in the log"]}"}}',
            f"GET https://b.local/w?X-Amz-Signature={s['signed URL in the log']}&x=1",
            f"ERROR clone failed {s['GitHub token in the root line']}",
            f"the container was called with {s[CONTAINER_KEY]} and {s['variable of the container']}",
            *(text for text in LOOK_ALIKES if not text.startswith(("--", "TOKENIZERS", "HF_HUB", "8192"))),
            "",
        ]
    )


class Known(Triage):
    """Knows the answer: a root line that holds a secret."""

    def diagnose(self, exit: ExitEvidence | None = None) -> Diagnosis:
        line = log_text().splitlines()[10]
        return Diagnosis(Stage.ENGINE_INIT, Family.OTHER, root_line_no=11, root_line=line)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    s = SECRETS
    log = tmp_path / "server.log"
    log.write_text(log_text())
    with git.Repo.init(tmp_path / "tree") as repository:
        repository.create_remote("origin", f"https://bob:{s['remote password']}@git.local/x.git")
        (tmp_path / "tree/a.env").write_text("x=1\n")
        repository.index.add(["a.env"])
        repository.index.commit("first")
        (tmp_path / "tree/a.env").write_text(f"password={s['password in the diff']}\n")
    argv = ["serve", "m", "--hf-token", s["hub token in argv"], "--api-key", s["api key in argv"], s["second api key"]]
    argv += ["--max-num-batched-tokens", "8192", "--tokenizer-mode", "auto"]
    program = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(300)"]
    environment = {
        "PATH": os.environ["PATH"],
        "MY_SERVICE_TOKEN": s["environment of the process"],
        "AWS_SECRET_ACCESS_KEY": s["AWS variable"],
        "https_proxy": f"http://me:{s['proxy password']}@proxy:3128",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
        "VLLM_STREAM_TOKEN_THRESHOLD": "512",
        "SOMETHING_ELSE": "not for a snapshot",
    }
    container = container_facts(
        "1" * 64,
        "prod",
        ("vllm", "serve", "m", "--api-key", s[CONTAINER_KEY]),
        environment={"REGISTRY_PASSWORD": s["variable of the container"], "HF_HUB_OFFLINE": "1"},
    )
    labelled = image_facts(container["Image"], **{"build.token": s["label of the image"]})
    process = subprocess.Popen([*program, *argv], env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        redactor = Redactor({"CALLERS_SECRET": KNOWN})
        folder = Workspace.open(tmp_path).new("snapshots", 1_800_000_000)
        context = Context(
            redactor=redactor,
            folder=folder,
            pid=process.pid,
            command=parse(["env", f"WANDB_API_KEY={s['environment of the command']}", "vllm", *argv]),
            minimal=parse(["vllm", "serve", "m", "--api-key", s["flag in the minimal command"]]),
            log=FileLog(log),
            sources=(tmp_path / "tree",),
            docker=FakeDocker(
                [container], [labelled], program=lambda _: Ran(1, f"cannot log in with {s['told by a program inside']}")
            ),
            container=container,
            request={"model": "m", "prompt": "p", "api_key": s["key in the request"]},
            fetch=lambda *_: "no Prometheus",
            series=Series(f"http://me:{s['password of Prometheus']}@prom:9090", 60.0),
            change=f"set password={s['what was changed']} on {KNOWN}",
        )
        collectors = [TriageCollector(Known) if c.name == "triage" else c for c in default_collectors()]
        write_snapshot(capture(context, collectors), folder, redactor)
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()
    return folder


def test_no_secret_is_in_any_written_byte_and_every_look_alike_is(written: Path) -> None:
    files = {path.name: path.read_bytes() for path in written.iterdir()}
    assert set(files) == {"fingerprint.json", "snapshot.json", "server.log.gz", "SNAPSHOT.md"}
    files["server.log.gz"] = gzip.decompress(files["server.log.gz"])
    everything = b"\n".join(files.values()).decode()
    assert len(SECRETS) >= 20
    assert [place for place, secret in SECRETS.items() if secret in everything] == []
    assert [secret for secret in ("not for a snapshot",) if secret in everything] == []
    assert [text for text in LOOK_ALIKES if text not in everything] == []
    assert files["server.log.gz"].count(b"\n") == log_text().count("\n")


def test_what_is_written_can_be_read_again(written: Path) -> None:
    document = json.loads((written / "snapshot.json").read_text())
    assert document["schema"] == "repro/snapshot"
    assert document["version"] == 1
    assert document["id"] == written.name == "20270115-080000"
    assert document["facts"]["process"]["environment"]["value"]["MY_SERVICE_TOKEN"].startswith("***masked:")
    assert document["masked"]["hf_token"] >= 1
    difference = {d["name"]: d for d in document["facts"]["command"]["difference"]["value"]}
    assert difference["--max-num-batched-tokens"]["command"] == "8192"
    (tree,) = document["facts"]["source"]["trees"]["value"]
    assert "+password=***masked:" in tree["diff"]
    assert "cannot log in with ***masked:" in document["missing"]["inside.vllm"]
    fingerprint = Fingerprint.from_json(json.loads((written / "fingerprint.json").read_text()))
    assert fingerprint.pinned["host.kernel"].known


def test_the_page_is_one_page_and_names_the_failure(written: Path) -> None:
    page = (written / "SNAPSHOT.md").read_text()
    assert "First failing stage **engine_init**, family **other**." in page
    assert " x hf_token" in page.split("## Masked")[1]
    assert "11: ERROR clone failed ***masked:github_token:1***" in page
    assert "no model was" not in page.split("## Not seen")[0]
    assert len(page.splitlines()) < 90


def test_nothing_is_overwritten(written: Path) -> None:
    before = (written / "snapshot.json").read_bytes()
    snapshot = capture(Context(Redactor()), [])
    with pytest.raises(WorkspaceUnusable, match=r"fingerprint\.json cannot be written"):
        write_snapshot(snapshot, written, Redactor())
    assert (written / "snapshot.json").read_bytes() == before


def test_odd_bytes_in_an_argument_list_are_written(tmp_path: Path) -> None:
    folder = Workspace.open(tmp_path).new("snapshots", 0.0)
    context = Context(Redactor(), folder=folder, change="\udcff odd")
    write_snapshot(capture(context), folder, Redactor())
    assert "odd" in (folder / "SNAPSHOT.md").read_text()
