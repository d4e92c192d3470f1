"""The tables of flags hold together."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from repro.domain.command import FlagKind, FlagSpec, canonical, spec_of
from repro.domain.command.flag_table import CURRENT
from repro.domain.command.flag_table_old import OLD

EVERY = (*CURRENT, *OLD)


def test_every_name_stands_once() -> None:
    names = Counter(name for spec in EVERY for name in (spec.name, *spec.aliases))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("spec", EVERY, ids=lambda spec: spec.name)
def test_every_flag_is_found_by_all_its_names(spec: FlagSpec) -> None:
    assert re.fullmatch(r"--[a-z0-9][a-z0-9-]*", spec.name)
    names = [
        spec.name,
        spec.name.replace("-", "_").replace("__", "--", 1),
        spec.name[2:].replace("-", "_"),
        *spec.aliases,
    ]
    if spec.kind is FlagKind.BOOLEAN:
        names.append("--no-" + spec.name[2:])
    assert {canonical(name) for name in names} == {spec.name}
    assert spec_of(spec.name) is spec


def test_whole_numbers_are_values() -> None:
    assert [s.name for s in EVERY if s.ordinal and s.kind is not FlagKind.VALUE] == []


def test_what_must_not_be_a_threshold_is_none() -> None:
    assert [
        s.name for s in EVERY if s.ordinal and re.search(r"-port$|(?<!lora)-rank$|^--seed$|-cert-reqs$", s.name)
    ] == []


def test_versions_are_versions_and_in_order() -> None:
    for spec in OLD:
        since, until = (tuple(map(int, v.split("."))) for v in (spec.since or "0.0", spec.until or "0.99"))
        assert since <= until, spec.name


def test_the_layout_is_known_in_full() -> None:
    layout = {s.name for s in CURRENT if s.layout}
    assert layout >= {
        "--tensor-parallel-size",
        "--pipeline-parallel-size",
        "--data-parallel-size",
        "--data-parallel-size-local",
        "--enable-expert-parallel",
        "--decode-context-parallel-size",
        "--prefill-context-parallel-size",
        "--nnodes",
        "--node-rank",
        "--master-addr",
        "--master-port",
        "--headless",
    }
    assert not layout & {"--max-num-seqs", "--enable-prefix-caching", "--port", "--all2all-backend"}
