"""What a fresh snapshot says about its recipe in one line."""

from __future__ import annotations

from repro.cli.snapshot_check import check_snapshot
from repro.domain.fingerprint import Fact, Fingerprint
from repro.snapshot.capture import Snapshot
from tests.fakes.fitting_facts import fitting_values


def snapshot(**changed: object) -> Snapshot:
    values = {**fitting_values("kimi-k3-b300"), **{name.replace("__", "."): value for name, value in changed.items()}}
    facts: dict[str, dict[str, Fact]] = {}
    for name, value in values.items():
        group, short = name.split(".")
        facts.setdefault(group, {})[short] = Fact.measured(value) if value is not None else Fact.unavailable("not seen")
    return Snapshot("x", 1_796_000_000.0, 1.0, facts, Fingerprint(), None)


def test_a_server_that_fits_its_recipe() -> None:
    checked = check_snapshot(snapshot())
    assert checked is not None
    assert (checked.recipe, checked.broken) == ("kimi-k3-b300", ())


def test_the_first_broken_link_comes_first() -> None:
    checked = check_snapshot(snapshot(gpu__driver_version="575.51.03", inside__vllm="0.26.0"))
    assert checked is not None
    assert checked.broken[0].startswith("driver: ")
    assert "575.51.03" in checked.broken[0]
    assert len(checked.broken) >= 2
    assert str(checked).startswith("kimi-k3-b300: broken at driver: ")


def test_what_is_not_known_is_counted() -> None:
    checked = check_snapshot(snapshot(gpu__driver_version=None))
    assert checked is not None
    assert checked.unknown >= 1
    assert "cannot be answered (repro check)" in str(checked)


def test_a_host_without_a_server_is_not_judged() -> None:
    assert check_snapshot(Snapshot("x", 0.0, 1.0, {}, Fingerprint(), None)) is None
