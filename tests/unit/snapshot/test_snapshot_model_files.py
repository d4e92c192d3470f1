"""The model's files, in a folder or in the hub's cache."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from repro.domain.command import parse
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context
from repro.snapshot.model_files import HashingModelFilesCollector, ModelFilesCollector
from repro.snapshot.model_place import find_model
from tests.fakes.docker import container_facts


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


def test_shards_that_the_index_names_are_looked_for(model: Path) -> None:
    shards = {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 9}, "weight_map": shards})
    )
    (model / "stray.safetensors").write_bytes(b"1")
    index = ModelFilesCollector().collect(Context(Redactor(), model=str(model)))["index"].value
    assert index["missing"] == ["model-00002.safetensors"]
    assert index["unlisted"] == ["stray.safetensors"]
    assert (index["shards"], index["tensors"], index["total_size"], index["bytes_present"]) == (2, 2, 9, 5)
    (model / "model.safetensors.index.json").write_text("{")
    assert not ModelFilesCollector().collect(Context(Redactor(), model=str(model)))["index"].known


def test_what_is_small_is_hashed_and_weights_only_on_request(model: Path) -> None:
    (model / "encoding_k3.py").write_text("x = 1\n")
    facts = ModelFilesCollector().collect(Context(Redactor(), model=str(model)))
    assert set(facts["small_files"].value) == {"config.json", "encoding_k3.py"}
    assert "--hash-weights" in facts["weight_hashes"].reason
    assert facts["weights"].value[0]["bytes"] == 5
    hashed = HashingModelFilesCollector().collect(Context(Redactor(), model=str(model), hash_weights=True))
    assert hashed["weight_hashes"].value == {"model-00001.safetensors": hashlib.sha256(b"12345").hexdigest()}


def test_a_model_that_is_mounted_into_a_container_is_found(model: Path, tmp_path: Path) -> None:
    container = container_facts("1" * 64, "prod", ("vllm", "serve", "/models/it"), environment={"HF_HOME": "~/hf"})
    container["Mounts"] = [
        {"Type": "bind", "Source": str(tmp_path), "Destination": "/models"},
        {"Type": "bind", "Source": str(tmp_path / "hf"), "Destination": "/root/hf"},
    ]
    model.rename(tmp_path / "it")
    context = Context(Redactor(), container=container, command=parse("vllm serve /models/it"))
    assert ModelFilesCollector().collect(context)["path"].value == str(tmp_path / "it")
    cached = tmp_path / "hf/hub/models--org--name"
    (cached / "snapshots/abc").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text("abc")
    by_name = Context(Redactor(), container=container, command=parse("vllm serve org/name"))
    assert ModelFilesCollector().collect(by_name)["revision"].value == "abc"
    elsewhere = Context(Redactor(), container=container, command=parse("vllm serve /opt/other"))
    assert "inside the container" in ModelFilesCollector().collect(elsewhere)["path"].reason
