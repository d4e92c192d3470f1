"""Logs recorded from the real vLLM beside this file, each with the stage, family and root line that are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from repro.domain.stage import Stage
from repro.triage import ExitEvidence, Triage, triage_file

LOGS = Path(__file__).parent / "logs"


def labels() -> list[tuple[str, dict[str, Any]]]:
    path = LOGS / "labels.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return [(slug, label) for slug, label in sorted(known.items()) if (LOGS / f"{slug}.log").is_file()]


@pytest.mark.parametrize(("slug", "label"), labels(), ids=[slug for slug, _ in labels()])
@pytest.mark.parametrize("told", [False, True], ids=["log alone", "with exit code"])
def test_recorded_log(slug: str, label: dict[str, Any], told: bool) -> None:
    outside = ExitEvidence(label.get("exit_code"), stopped_by_us=label["stage"] == Stage.NONE.value) if told else None
    answer = triage_file(LOGS / f"{slug}.log", outside)
    if label["stage"] == Stage.NONE.value:
        assert answer.stage is Stage.NONE, answer
        return
    fair = {f"{label['stage']}/{label['family']}", *label.get("alternatives", [])}
    assert f"{answer.stage}/{answer.family}" in fair, answer
    assert label["root_line_contains"] in (answer.root_line or ""), answer


@pytest.mark.parametrize("slug", [slug for slug, label in labels() if label["stage"] == Stage.NONE.value])
def test_no_part_of_a_healthy_log_ends_a_launch_early(slug: str) -> None:
    live = Triage()
    for line in (LOGS / f"{slug}.log").read_bytes().splitlines(keepends=True):
        live.feed(line)
        assert not live.diagnose(ExitEvidence()).certain, line
