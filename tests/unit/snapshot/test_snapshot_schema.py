"""The documents of a snapshot hold to their schemas, and the schemas refuse what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from repro.cli.schema import command
from repro.domain.fingerprint import Fact, Fingerprint
from repro.errors import InvalidFile, UsageError
from repro.redact.redactor import Redactor
from repro.session.workspace import Workspace
from repro.snapshot.capture import Snapshot, capture
from repro.snapshot.collector import Context
from repro.snapshot.schema import SNAPSHOT_SCHEMAS, snapshot_schema
from repro.snapshot.write import read_fingerprint, write_snapshot


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Workspace.open(tmp_path_factory.mktemp("w")).new("snapshots", 0.0)
    before = Fingerprint({"gpu.driver_version": Fact.measured("575.1"), "host.kernel": Fact.measured("other")})
    context = Context(Redactor(), folder=folder, change="a newer kernel", changed_at=5.0)
    write_snapshot(capture(context, previous=("before", before)), folder, Redactor())
    return folder


def document(folder: Path, kind: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder / f"{kind}.json").read_text())
    return loaded


@pytest.mark.parametrize("kind", SNAPSHOT_SCHEMAS)
def test_what_is_written_fits_and_what_is_broken_does_not(folder: Path, kind: str) -> None:
    schema = snapshot_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    whole = document(folder, kind)
    jsonschema.validate(whole, schema)
    for broken in ({**whole, "version": 2}, {k: v for k, v in whole.items() if k != "id"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)


def test_an_unavailable_fact_needs_its_reason(folder: Path) -> None:
    whole = document(folder, "fingerprint")
    whole["pinned"]["host.kernel"] = {"value": None, "label": "unavailable"}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(whole, snapshot_schema("fingerprint"))


def test_what_changed_since_the_one_before_is_kept(folder: Path) -> None:
    told = document(folder, "snapshot")
    assert told["previous"] == "before"
    kernel = next(found for found in told["changed"] if found["name"] == "host.kernel")
    assert kernel["before"]["value"] == "other"
    assert kernel["now"]["label"] == "measured"
    assert told["facts"]["command"]["change"]["value"] == "a newer kernel"
    assert told["facts"]["command"]["changed_at"]["value"] == 5.0
    page = (folder / "SNAPSHOT.md").read_text()
    assert "## Changed since before" in page
    assert "`host.kernel`: other -> " in page


def test_a_fingerprint_is_read_back_and_anything_else_refused(folder: Path, tmp_path: Path) -> None:
    assert read_fingerprint(folder).pinned["host.kernel"].known
    for text in ("{", "{}", '{"version": 7}'):
        (tmp_path / "fingerprint.json").write_text(text)
        with pytest.raises(InvalidFile, match=r"fingerprint\.json"):
            read_fingerprint(tmp_path)
    with pytest.raises(InvalidFile):
        read_fingerprint(tmp_path / "none")


def test_times_of_the_capture_are_told() -> None:
    snapshot = Snapshot("x", 0.0, 1.0, {}, Fingerprint(), None, taken={"host": 1.0, "container": 12.0})
    assert snapshot.warnings == ("the facts of host and container were taken 11 s apart",)
    assert Snapshot("x", 0.0, 1.0, {}, Fingerprint(), None, taken={"host": 1.0, "container": 9.0}).warnings == ()


@pytest.mark.parametrize("kind", ["fingerprint", "snapshot", "scenario", "recipe"])
def test_every_schema_is_printed(kind: str) -> None:
    printed = CliRunner().invoke(command, [kind], standalone_mode=False)
    assert json.loads(printed.output)["title"] == f"repro {kind}"


def test_another_schema_is_wrong_usage() -> None:
    refused = CliRunner().invoke(command, ["bisect"], standalone_mode=False)
    assert isinstance(refused.exception, UsageError)
    assert "fingerprint" in refused.exception.hint
