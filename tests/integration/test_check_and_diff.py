"""`repro check` and `repro diff` on planted snapshots: exit codes, headlines, and what a script reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from repro.cli.check_breaks import broken_links
from repro.cli.main import run
from repro.cli.snapshot_subject import Subject
from repro.domain.fingerprint import Fact, Fingerprint
from repro.errors import UsageError
from repro.redact.redactor import Redactor
from repro.session.workspace import Workspace
from repro.snapshot.capture import Snapshot
from repro.snapshot.names import CONFIGURED, PINNED, fingerprint_of
from repro.snapshot.write import write_snapshot
from tests.fakes.fitting_facts import fitting_argv, fitting_values

B300, B200 = "kimi-k3-b300", "kimi-k3-b200-2node"


@pytest.fixture
def snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of snapshots of the workspace in the current folder."""
    monkeypatch.chdir(tmp_path)
    return Workspace.open(tmp_path).root / "snapshots"


def snapshot_of(name: str, changed: Mapping[str, Any] | None = None, node: int = 0) -> Snapshot:
    """A snapshot of a server that fits the recipe, but for what is changed; None is unavailable."""
    facts: dict[str, dict[str, Fact]] = {}
    for dotted, value in {**fitting_values(name, node), **(changed or {})}.items():
        group, short = dotted.split(".")
        fact = Fact.unavailable("permission denied") if value is None else Fact.measured(value)
        facts.setdefault(group, {})[short] = fact
    return Snapshot("planted", 0.0, 1.0, facts, fingerprint_of(facts, (*PINNED, *CONFIGURED)), None)


def plant(folder: Path, snapshot: Snapshot) -> str:
    folder.mkdir(parents=True)
    write_snapshot(snapshot, folder, Redactor())
    return folder.name


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = run([*arguments, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def test_a_good_snapshot_exits_with_0_and_says_what_it_was_held_against(
    snapshots: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(snapshots / "20261201-100000", snapshot_of(B300))
    code, document = asked(capsys, "check")
    assert code == 0
    assert (document["schema"], document["version"], document["outcome"]) == ("repro/check", 1, "holds")
    assert (document["recipe"]["name"], document["recipe"]["commit"]) == (B300, "8959cf6")
    assert (document["nodes"], document["origin"]) == (["node0"], "official")
    assert {rule["outcome"] for rule in document["rules"] if not rule["advice"]} == {"holds"}
    assert run(["check"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Every link holds")
    assert "at 8959cf6, read 2026-12-01" in shown


def test_the_newest_snapshot_is_taken_and_a_broken_link_exits_with_4(
    snapshots: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = plant(snapshots / "20261201-100000", snapshot_of(B300))
    plant(snapshots / "20261201-110000", snapshot_of(B300, {"gpu.driver_version": "575.57.08"}))
    code, document = asked(capsys, "check")
    assert (code, document["first_broken"], document["headline"]["id"]) == (4, "driver", "driver.version")
    assert run(["check", old]) == 0
    capsys.readouterr()
    assert run(["check"]) == 4
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "BROKEN at the driver: driver 575.57.08"
    assert any(line.startswith("  mend: install driver R580 or newer") for line in shown)
    assert any("(holds, not yet)" in line for line in shown)


def test_too_little_known_exits_with_10_and_says_how_to_learn_it(
    snapshots: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = {"inside.cuda": None, "inside.torch": None, "process.libraries": None}
    plant(snapshots / "20261201-100000", snapshot_of(B300, missing))
    code, document = asked(capsys, "check")
    assert (code, document["outcome"], document["headline"]) == (10, "unknown", None)
    assert run(["check"]) == 10
    shown = capsys.readouterr().out
    assert shown.startswith("TOO LITTLE KNOWN: 1 of ")
    assert "missing: cuda.runtime: nothing from inside; on the host: the driver can run CUDA up to 13.0" in shown


def test_what_is_not_known_before_the_broken_link_is_told(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = {"gpu.driver_version": None, "container.image": "vllm/vllm-openai:kimi-k3"}
    plant(snapshots / "20261201-100000", snapshot_of(B300, changed))
    assert run(["check"]) == 4
    shown = capsys.readouterr().out
    assert shown.startswith("BROKEN at the image build: the tag 'kimi-k3' of vllm/vllm-openai moves; what runs is ")
    assert "not known before it: driver.version" in shown


def test_nodes_are_checked_together(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = plant(snapshots / "20261201-100000", snapshot_of(B200))
    second = plant(snapshots / "20261201-100001", snapshot_of(B200, node=1))
    code, document = asked(capsys, "check", first, second)
    assert (code, document["nodes"], document["recipe"]["name"]) == (0, ["node0", "node1"], B200)
    assert run(["check", second]) == 10
    older = {"gpu.driver_version": "581.1", "process.libraries": None}
    third = plant(snapshots / "20261201-100002", snapshot_of(B200, older, node=1))
    capsys.readouterr()
    code, document = asked(capsys, "check", first, third)
    assert (code, document["headline"]["id"]) == (4, "driver.equal")


def test_two_snapshots_of_one_host_are_no_two_nodes(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boot = {"host.boot_time": 1.0}
    names = [plant(snapshots / f"20261201-10000{i}", snapshot_of(B200, boot)) for i in range(2)]
    assert run(["check", *names]) == 2
    assert "are both of host node0" in capsys.readouterr().err


def test_a_self_built_image_is_declared(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"container.image": "registry.example/vllm@sha256:" + "ab" * 32, "container.repo_digests": []}
    plant(snapshots / "20261201-100000", snapshot_of(B300, own))
    code, document = asked(capsys, "check")
    assert (code, document["headline"]["id"], document["origin"]) == (4, "image.self_built", "self-built")
    told = "commit=98dff2a8,lock=uv.lock,recipe=Dockerfile,rollback=tag 14"
    code, document = asked(capsys, "check", "--self-built", told)
    assert (code, document["self_built"]["rollback"]) == (0, "tag 14")
    assert run(["check", "--self-built", "sha=1"]) == 2
    assert "'sha=1' is not understood" in capsys.readouterr().err


def test_gpus_are_declared_where_no_driver_tells(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mi355x = "kimi-k3-mi355x"
    plant(snapshots / "20261201-100000", snapshot_of(mi355x, {"gpu.devices": None, "inside.gpus": None}))
    assert asked(capsys, "check", "--recipe", mi355x)[0] == 10
    code, document = asked(capsys, "check", "--gpus", "8xMI355X:288")
    assert (code, document["recipe"]["name"]) == (0, mi355x)
    evidence = {rule["id"]: rule["evidence"] for rule in document["rules"]}
    assert (evidence["gpu.model"], evidence["gpu.memory"]) == ("declared", "declared")
    assert run(["check", "--gpus", "many"]) == 2
    assert "8xMI355X:288" in capsys.readouterr().err
    plant(snapshots / "20261201-110000", snapshot_of(B300))
    measured = asked(capsys, "check", "--gpus", "1xT4")[1]
    assert (measured["outcome"], measured["recipe"]["name"]) == ("holds", B300)


def test_a_fingerprint_alone_is_enough_to_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"gpu.driver_version": Fact.measured("570.1")}
    document = {"schema": "repro/fingerprint", "version": 1, **Fingerprint(facts).as_json()}
    path = tmp_path / "fingerprint.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    code, told = asked(capsys, "check", str(path), "--recipe", B300)
    assert (code, told["headline"]["id"]) == (4, "driver.version")
    path.write_text(json.dumps({**document, "version": 9}), encoding="utf-8")
    assert run(["check", str(path)]) == 2
    assert "version 9 is not 1" in capsys.readouterr().err
    path.write_text("{}", encoding="utf-8")
    assert run(["check", str(path)]) == 2
    assert "fingerprint.json: its schema is not repro/fingerprint" in capsys.readouterr().err


def test_a_command_is_checked_against_this_host(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--json", "--", "sleep", "1"]) == 2
    assert "vllm" in capsys.readouterr().err
    code = run(["check", "--json", "--", "vllm", "serve", "Qwen/Qwen3-0.6B", "--no-such-flag"])
    told = json.loads(capsys.readouterr().out)
    assert code == 4
    assert told["nodes"]
    assert next(rule["seen"] for rule in told["rules"] if rule["id"] == "flags.known").endswith("--no-such-flag")
    plant(snapshots / "20261201-100000", snapshot_of(B300))
    assert run(["check", "20261201-100000", "--", "vllm", "serve", "Qwen/Qwen3-0.6B"]) == 2


def test_without_a_snapshot_the_user_is_told_what_to_do(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check"]) == 2
    assert "repro snapshot" in capsys.readouterr().err
    assert run(["diff", "a", "b"]) == 2
    assert "no snapshot a" in capsys.readouterr().err


def test_diff_names_what_moved(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = plant(snapshots / "20261201-100000", snapshot_of(B300))
    argv = [*fitting_argv(B300), "--seed", "1"]
    after = plant(snapshots / "20261201-110000", snapshot_of(B300, {"process.argv": argv}))
    code, document = asked(capsys, "diff", before, after)
    assert code == 0
    assert (document["schema"], document["same"], document["moved"]) == ("repro/diff", False, ["flags"])
    assert [case["id"] for case in document["cases"]] == ["one_moved"]
    assert run(["diff", before, after]) == 0
    shown = capsys.readouterr().out
    assert "only one thing moved: flags" in shown
    assert "--seed" in shown


@pytest.mark.parametrize(
    ("was", "now", "case"),
    [
        ({}, {"gpu.driver_version": "590.44.01"}, "old_libraries"),
        (
            {"container.image": "vllm/vllm-openai:kimi-k3"},
            {"container.image": "vllm/vllm-openai:kimi-k3", "container.image_id": "sha256:" + "cd" * 32},
            "same_tag_other_image",
        ),
        ({}, {"host.kernel": "Linux 6.8", "inside.vllm": "0.32.0"}, "several_moved"),
        ({}, {}, "nothing_moved"),
    ],
)
def test_diff_names_the_cases(
    snapshots: Path, capsys: pytest.CaptureFixture[str], was: dict[str, Any], now: dict[str, Any], case: str
) -> None:
    before = plant(snapshots / "20261201-100000", snapshot_of(B300, was))
    after = plant(snapshots / "20261201-110000", snapshot_of(B300, now))
    document = asked(capsys, "diff", before, after)[1]
    assert case in [found["id"] for found in document["cases"]]


def test_two_nodes_parts_of_one_snapshot(snapshots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = snapshots / "20261201-100000"
    plant(whole, snapshot_of(B200))
    plant(whole / "nodes" / "n1", snapshot_of(B200, {"gpu.driver_version": "590.44"}, node=1))
    document = asked(capsys, "diff", whole.name, f"{whole.name}/n1")[1]
    assert (document["a"]["node"], document["b"]["node"]) == ("node0", "node1")
    assert document["moved"] == ["driver"]
    assert run(["diff", whole.name, f"{whole.name}/n2"]) == 2
    assert "parts there: n1" in capsys.readouterr().err


def test_diff_with_this_host_now(
    snapshots: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever else runs on the machine of this test is not looked for.
    monkeypatch.setattr("repro.cli.scenes.find_subject", lambda *_, **__: Subject("this host"))
    before = plant(snapshots / "20261201-100000", snapshot_of(B300, {"host.hostname": None}))
    document = asked(capsys, "diff", before, "now")[1]
    assert "host" in document["moved"]
    assert document["b"]["name"] == "now: this host"
    assert run(["diff", "now", before]) == 2
    assert "the older side comes first" in capsys.readouterr().err


def test_several_servers_now_are_a_question(
    snapshots: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def several(*_: object, **__: object) -> Subject:
        raise UsageError("2 vLLM servers are here", "name the one that failed")

    monkeypatch.setattr("repro.cli.scenes.find_subject", several)
    before = plant(snapshots / "20261201-100000", snapshot_of(B300, {"container.id": None}))
    assert run(["diff", before, "now"]) == 2
    assert "repro snapshot --pid PID" in capsys.readouterr().err


def test_the_lines_for_a_snapshots_page() -> None:
    assert broken_links(snapshot_of(B300)) == ()
    (line,) = broken_links(snapshot_of(B300, {"gpu.driver_version": "575.57.08"}))
    assert line.startswith(f"broken at the driver: driver 575.57.08 (recipe {B300}); install driver R580")
    (unknown,) = broken_links(snapshot_of(B300, {"model_files.weight_files": None}))
    assert "1 of " in unknown
