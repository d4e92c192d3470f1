"""The fingerprint between trials: equal when nothing moved, different when something did, and quick."""

from __future__ import annotations

import os
from pathlib import Path

from repro.domain.fingerprint import Fact, Fingerprint, moved
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context
from repro.snapshot.names import OBSERVED, PINNED
from repro.snapshot.pinned import pinned_facts


def test_it_moves_with_the_model_and_the_image_and_with_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "w.safetensors").write_bytes(b"1")

    def now(image: str = "sha256:1") -> Context:
        return Context(Redactor(), model=str(tmp_path), recipe_hash="r", image_id=image, environment=os.environ)

    first = pinned_facts(now())
    assert moved(first, pinned_facts(now())) == ()
    assert set(first.pinned) == set(PINNED)
    assert set(first.observed) == set(OBSERVED)
    assert [d.name for d in moved(first, pinned_facts(now("sha256:2")))] == ["command.image_id"]
    (tmp_path / "w.safetensors").write_bytes(b"12")
    assert [d.name for d in moved(first, pinned_facts(now()))] == ["model_files.digest"]


def test_a_moved_package_is_named_with_both_versions() -> None:
    before = Fingerprint({"libraries.installed": Fact.measured({"torch": "2.13.0", "numpy": "1.0", "old": "1"})}, {})
    now = Fingerprint({"libraries.installed": Fact.measured({"torch": "2.14.0", "numpy": "1.0", "new": "2"})}, {})
    (difference,) = moved(before, now)
    assert str(difference) == ("libraries.installed: new absent -> 2, old 1 -> absent, torch 2.13.0 -> 2.14.0")
