"""The answer of a search in words: what to do next, for every way that a search can end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from repro.cli.bisect_text import result_text
from repro.cli.wiring import Finished
from repro.domain.command import parse
from repro.domain.failure import Family, Signature
from repro.domain.finding import Bracket, Finding, Member, ResultKind, SearchResult, SetAside, Tally
from repro.domain.scene import Scene
from repro.domain.stage import Stage
from repro.domain.variable import Kind, Variable

EAGER = Variable("--enforce-eager", Kind.LAUNCH, None, True, parts=("--enforce-eager",))
SCENE = Scene("s", (EAGER,), parse("vllm serve m"), parse("vllm serve m --enforce-eager"))
OOM = Signature(Stage.ENGINE_INIT, Family.OOM_GPU)
MEMBER = Member("input_tokens", Kind.REQUEST, Bracket(31969, 33555, "within 5.0 %", exceptions=(44870,)))
FINDING = Finding(OOM, (MEMBER,), failed=Tally(4, 4), passed=Tally(4, 4))


def text_of(result: SearchResult, *events: str) -> str:
    journal = tuple({"n": n, "at": 0.0, "event": event} for n, event in enumerate(("session", *events, "result")))
    return result_text(Finished(result, journal, Path("/x/.repro/sessions/20270101-000000")), SCENE)


def next_steps(text: str) -> list[str]:
    return [line.removeprefix("next:").strip() for line in text.splitlines() if line.startswith("next:")]


@pytest.mark.parametrize(
    ("kind", "headline", "step"),
    [
        (ResultKind.NOT_REPRODUCED, "NOT REPRODUCED", "--request"),
        (ResultKind.END_NOT_AS_CLAIMED, "not as claimed", "without --target"),
        (ResultKind.INCONCLUSIVE, "INCONCLUSIVE", "begin a new search"),
    ],
)
def test_every_end_without_a_finding_says_what_to_do(kind: ResultKind, headline: str, step: str) -> None:
    text = text_of(SearchResult(kind, note="why it is so"))
    assert headline in text
    assert "why it is so" in text
    (only,) = next_steps(text)
    assert step in only


@pytest.mark.parametrize("kind", [ResultKind.FOUND, ResultKind.MINIMAL_FAILS])
def test_a_finding_is_to_be_bundled(kind: ResultKind) -> None:
    assert next_steps(text_of(SearchResult(kind, findings=(FINDING,)))) == ["repro bundle 20270101-000000"]


def test_a_spent_budget_is_to_be_enlarged_before_what_is_known_is_bundled() -> None:
    steps = next_steps(text_of(SearchResult(ResultKind.INCONCLUSIVE, findings=(FINDING,)), "stopped"))
    assert steps[0].startswith("repro bisect --resume")
    assert steps[1].startswith("repro bundle")


def test_a_finding_is_told_with_its_bracket_counts_and_exceptions() -> None:
    text = text_of(SearchResult(ResultKind.FOUND, findings=(FINDING,)))
    assert re.search(r"input_tokens +request +31,969 +33,555 +within 5.0 %", text)
    assert "failed so 4 of 4 times (95 %: 51 to 100 %)" in text
    assert "a fault rarer than 53 % may have been missed" in text
    assert "the other way round at 44,870" in text


def test_what_was_set_aside_and_what_is_still_possible_is_said() -> None:
    aside = SetAside("--kv-cache-dtype", Signature(Stage.ENGINE_INIT, Family.KERNEL_COMPILE), "t-0", "failed otherwise")
    text = text_of(SearchResult(ResultKind.INCONCLUSIVE, set_aside=(aside,), still_possible=("--x", "--y")))
    assert "--kv-cache-dtype: engine_init/kernel_compile" in text
    assert "Still possible: --x, --y" in text
