"""The labelled corpus: how many stages, families and root lines are right. A floor, so that no change loses a case."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro.domain.stage import Stage
from repro.triage import Diagnosis, triage_file, triage_text

FLOOR = {"stage": 77, "family": 77, "root": 77, "all": 77}  # of the 77 cases known when this was written
CORPUS = Path(os.environ.get("REPRO_CORPUS") or Path(__file__).parents[4] / "shared" / "corpus")


def cases() -> list[Path]:
    folder = CORPUS / "cases"
    if not folder.is_dir():
        pytest.skip("no labelled corpus beside the repository; name one with REPRO_CORPUS")
    return sorted(path for path in folder.iterdir() if (path / "label.json").is_file())


def judged(label: dict[str, Any], answer: Diagnosis) -> dict[str, bool]:
    healthy = label["stage"] == Stage.NONE.value
    stage = answer.stage.value in {label["stage"], *label.get("alt_stages", [])}
    family = healthy or (answer.family is not None and answer.family.value) in {
        label["family"],
        *label.get("alt_families", []),
    }
    lines = {label.get("root_line_no"), *label.get("alt_root_line_nos", [])}
    root = answer.stage is Stage.NONE if healthy else answer.root_line_no in lines
    return {"stage": stage, "family": family, "root": root, "all": stage and family and root}


def test_no_case_of_the_corpus_is_lost() -> None:
    right = dict.fromkeys(FLOOR, 0)
    wrong = []
    for case in cases():
        label = json.loads((case / "label.json").read_text(encoding="utf-8"))
        verdicts = judged(label, triage_file(case / "log.txt"))
        for key, good in verdicts.items():
            right[key] += good
        if not verdicts["all"]:
            wrong.append(case.name)
    assert all(right[key] >= least for key, least in FLOOR.items()), (right, wrong)


def test_the_root_line_is_given_exactly() -> None:
    for case in cases():
        answer = triage_file(case / "log.txt")
        if answer.root_line_no is not None:
            lines = (case / "log.txt").read_bytes().split(b"\n")
            assert answer.root_line == lines[answer.root_line_no - 1].decode("utf-8", "replace"), case.name


def test_known_consequences_are_named_and_little_else() -> None:
    """F1 over all lines of all failing cases; another copy of the root (alt_root_line_nos) counts neither way."""
    right = wrong = missed = 0
    for case in cases():
        label = json.loads((case / "label.json").read_text(encoding="utf-8"))
        answer = triage_file(case / "log.txt")
        assert answer.root_line_no not in answer.consequences
        if label["stage"] == Stage.NONE.value:
            continue
        lines = (case / "log.txt").read_bytes().decode("utf-8", "replace").split("\n")
        named, wanted = {lines[number - 1] for number in answer.consequences}, set(label.get("consequence_lines", []))
        copies = {lines[number - 1] for number in label.get("alt_root_line_nos", []) if number}
        right += len(named & wanted)
        wrong += len(named - wanted - copies)
        missed += len(wanted - named)
    f1 = 2 * right / (2 * right + wrong + missed)
    assert f1 >= 0.89, (f1, right, wrong, missed)


def json_record(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stderr", "time": "2025-01-01T00:00:00Z"})


@pytest.mark.parametrize(
    ("name", "coat"),
    [
        ("docker json", json_record),
        ("cri", lambda line: f"2025-01-01T00:00:00.123456789Z stderr F {line}"),
        ("compose", lambda line: f"vllm-1  | {line}"),
        ("journal", lambda line: f"Oct  8 03:20:36 node7 docker[4711]: {line}"),
        ("trailing blanks", lambda line: f"{line}        "),
    ],
)
def test_no_case_is_lost_under_a_coat(name: str, coat: Callable[[str], str]) -> None:
    lost = []
    for case in cases():
        label = json.loads((case / "label.json").read_text(encoding="utf-8"))
        lines = (case / "log.txt").read_bytes().decode("utf-8", "replace").split("\n")
        if not judged(label, triage_text("\n".join(coat(line) for line in lines)))["all"]:
            lost.append(case.name)
    assert not lost, name


def test_noise_between_all_lines_moves_the_root_line_and_nothing_else() -> None:
    noise = "node7:5001:6001 [1] NCCL INFO Channel 01/0 : 1[1] -> 2[2] via P2P/CUMEM\n"
    for case in cases():
        plain = triage_file(case / "log.txt")
        noisy = triage_text((case / "log.txt").read_bytes().replace(b"\n", b"\n" + noise.encode()))
        assert (noisy.stage, noisy.family, noisy.root_line) == (plain.stage, plain.family, plain.root_line), case.name
