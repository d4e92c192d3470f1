"""The model's files, in a folder or in the hub's cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro.domain.command import parse
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context
from repro.snapshot.model_files import ModelFilesCollector
from repro.snapshot.model_place import find_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model-00001.safetensors").write_bytes(b"12345")
    return folder


def digest(model: Path) -> str:
    return str(ModelFilesCollector().collect(Context(Redactor(), model=str(model)))["digest"].value)


def test_a_folder(model: Path) -> None:
    facts = ModelFilesCollector().collect(Context(Redactor(), command=parse(f"vllm serve {model}")))
    assert set(facts) == set(ModelFilesCollector.fields)
    assert facts["path"].value == str(model)
    assert facts["files"].value == 2
    assert facts["weight_files"].value == 1
    assert facts["bytes"].value == 7
    assert not facts["revision"].known


def test_the_digest_sees_a_replaced_weight_and_a_changed_configuration(model: Path) -> None:
    first = digest(model)
    assert digest(model) == first
    os.utime(model / "model-00001.safetensors", (1, 1))
    second = digest(model)
    assert second != first
    status = (model / "config.json").stat()
    (model / "config.json").write_text("[]")
    os.utime(model / "config.json", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digest(model) != second


def test_a_hub_name_is_found_in_the_cache(tmp_path: Path) -> None:
    cached = tmp_path / "models--org--name"
    (cached / "snapshots/abc").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text("abc")
    environment = {"HF_HUB_CACHE": str(tmp_path)}
    assert find_model("org/name", None, environment) == (cached / "snapshots/abc", "abc")
    assert find_model("org/name", "abc", environment)[1] == "abc"
    with pytest.raises(LookupError, match="revision v2 of org/name is not in the cache"):
        find_model("org/name", "v2", environment)
    with pytest.raises(LookupError, match="neither a folder nor in the cache"):
        find_model("org/other", None, environment)


def test_a_missing_configuration_costs_its_own_field(model: Path) -> None:
    (model / "config.json").unlink()
    facts = ModelFilesCollector().collect(Context(Redactor(), model=str(model)))
    assert "not there" in facts["config_sha256"].reason
    assert facts["digest"].known
