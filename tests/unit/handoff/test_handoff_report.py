"""The report says the answer first, marks one difference a pair, and lets no log line become markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Outcome, Passed
from repro.domain.stage import Stage
from repro.domain.variable import Configuration
from repro.handoff import english
from repro.handoff.case import read_case
from repro.handoff.markdown import block, cell, escaped, table
from repro.handoff.report import Enclosed, headline, report
from repro.redact.redactor import Redactor
from repro.session.codec import configuration_from_json


def text_of(session: Any) -> str:
    case = read_case(session.folder, session.events, session.scene)
    return report(case, Enclosed(rebuild={side.id: "repro run" for side in case.sides}), Redactor())


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


HEADLINES = {
    "found": "serving/illegal_memory_access when input_tokens is",
    "minimal_fails": "The minimal command fails by itself with serving/illegal_memory_access",
    "not_reproduced": "NOT REPRODUCED",
    "inconclusive": "INCONCLUSIVE",
}


def test_the_first_line_says_how_it_ended(any_session: tuple[str, Any]) -> None:
    outcome, session = any_session
    first = text_of(session).split("\n\n")[1]
    assert first.startswith(f"**{HEADLINES[outcome]}")
    assert ("Proven on fresh servers" in first) == (outcome == "found")


def test_each_pair_differs_in_its_variable_alone(found: Any) -> None:
    text = text_of(found)
    for pair in found.events[-1]["findings"][0]["proof"]:
        part = section(text, f"The pair that proves {pair['variable']}")
        marked = [line for line in part.splitlines() if "<-- differs" in line]
        assert len(marked) == 1
        assert f"`{pair['variable']}`" in marked[0]
        assert pair["failing_trial"] in part
        assert pair["passing_trial"] in part


def test_the_timeline_shows_every_trial_and_the_way_back(found: Any) -> None:
    rows = section(text_of(found), "Timeline of all trials").splitlines()[2:]
    finished = [e for e in found.events if e["event"] == "finished"]
    assert sum(row.startswith("|") for row in rows[1:]) == len(finished)
    aside = next(n for n, row in enumerate(rows) if "set aside, not followed" in row)
    assert "--kv-cache-dtype" in rows[aside]
    assert "ROLLED BACK to stable/" in rows[aside + 1]


def test_what_is_not_needed_and_what_is_not_known_is_said(found: Any) -> None:
    text = text_of(found)
    assert "minimal values: `concurrency`, `--kv-cache-dtype`, `--seed`." in section(text, "What was ruled out")
    unknown = section(text, "What is not known, and what limits this result")
    bracket = found.events[-1]["findings"][0]["variables"][0]
    assert f"Between {bracket['passing']:,} and {bracket['failing']:,} of `input_tokens` nothing was tried" in unknown
    for said in ("not deterministic", "`--kv-cache-dtype` (engine_init/kernel_compile)", "`gpu.driver_version`"):
        assert said in unknown
    assert "95 % interval: 51 to 100 %" in text


def test_facts_carry_their_evidence(found: Any) -> None:
    rows = section(text_of(found), "Environment")
    assert re.search(r"`host.kernel` +\| pinned +\| `Linux \\\| 6` +\| measured", rows)
    assert re.search(r"`gpu.driver_version` +\| pinned +\| unavailable: no NVML +\| unavailable", rows)


def test_a_budget_that_ended_the_search_leaves_a_weaker_report(
    make_session: Callable[..., Any], long_with_cache: Callable[[Configuration], Outcome]
) -> None:
    whole = make_session(long_with_cache)
    asks = sum(e["event"] == "ask" for e in whole.events)
    kinds: Counter[bool] = Counter()
    for stop in range(1, asks):
        session = make_session(long_with_cache, stop)
        case = read_case(session.folder, session.events, session.scene)
        assert headline(case).startswith("INCONCLUSIVE") or headline(case).endswith("Found, NOT proven.")
        assert "Proven on fresh servers" not in text_of(session)
        for pair in case.pairs:
            assert pair.passing is None or pair.passing.configuration.changed_from(pair.failing.configuration) == (
                pair.variable,
            )
        kinds[bool(case.pairs[0].passing)] += 1
    assert kinds[False]
    assert kinds[True]


def test_a_masked_pair_is_called_so(make_session: Callable[..., Any]) -> None:
    foreign = Failure(Stage.ENGINE_INIT, Family.OOM_GPU, "CUDA out of memory", 3, "CUDA out of memory")
    target = Failure(Stage.SERVING, Family.HANG)

    def oracle(configuration: Configuration) -> Outcome:
        if configuration["--seed"] == "7":
            return Failed(target) if configuration["prefix_caching"] else Failed(foreign)
        return Passed()

    text = text_of(make_session(oracle))
    assert "MASKED" in section(text, "The pair that proves prefix_caching")
    assert "failed with engine_init/oom_gpu" in section(text, "The pair that proves prefix_caching")
    assert "MASKED" not in section(text, "The pair that proves --seed")
    assert "Found, NOT proven" in text.split("\n\n")[1]


def test_unproven_sides_are_real_trials(found: Any) -> None:
    cut = replace(found, events=[e for e in found.events if e["event"] != "result"])
    case = read_case(cut.folder, cut.events, cut.scene)
    assert [side.trial["purpose"] for side in case.sides] == ["production end"]
    assert case.sides[0].configuration == configuration_from_json(case.sides[0].trial["values"])


@given(st.text())
def test_text_cannot_leave_its_cell(text: str) -> None:
    (row,) = table(["a", "b"], [(cell(text), escaped(text))]).splitlines()[2:]
    assert len(re.findall(r"(?<!\\)\|", row.replace("\\\\", ""))) == 3


@given(st.text(alphabet="`a\n#"))
def test_text_cannot_end_its_block(text: str) -> None:
    first, *inner, last = block(text).splitlines()
    assert last == first.removesuffix("text")
    assert all(line.strip() != last for line in inner)


def named(word: str, code: str) -> bool:
    return f'"{word}"' in code or f"'{word}'" in code


def test_no_sentence_is_left_over() -> None:
    """Keys that code names in pieces (`t_…`, `pair_…`, `side_…`) are named by those pieces."""
    room = Path(english.__file__).parent
    code = "".join(p.read_text(encoding="utf-8") for p in room.glob("*.py") if p.name != "english.py")
    pieces = {"pair_": {"holds", "masked", "broken", "unproven"}, "side_": {"passed", "failed", "unresolved"}}
    for key in english.KEYS:
        prefix, _, rest = key.partition("_")
        by_piece = rest in pieces.get(f"{prefix}_", set()) or (prefix == "t" and named(rest, code))
        whole = named(key, code) or key in ("not_reproduced", "inconclusive")
        assert by_piece or whole, key
