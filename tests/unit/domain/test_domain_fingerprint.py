"""Two scenes are the same only where both sides know the same."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from repro.domain.fingerprint import Fact, Fingerprint, compare, moved

VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=2))
FACTS = st.one_of(
    st.builds(Fact.measured, VALUES), st.builds(Fact.declared, VALUES), st.builds(Fact.unavailable, st.text(max_size=5))
)
NAMES = st.sampled_from(["gpu.driver_version", "host.kernel", "libraries.vllm", "host.load"])
FINGERPRINTS = st.builds(Fingerprint, st.dictionaries(NAMES, FACTS), st.dictionaries(NAMES, FACTS))


@given(FINGERPRINTS)
def test_json_keeps_everything(fingerprint: Fingerprint) -> None:
    assert Fingerprint.from_json(json.loads(json.dumps(fingerprint.as_json()))) == fingerprint


@given(FINGERPRINTS, FINGERPRINTS)
def test_comparison_is_symmetric_and_nothing_differs_from_itself(a: Fingerprint, b: Fingerprint) -> None:
    assert compare(a, a) == ()
    assert [d.name for d in compare(a, b)] == [d.name for d in compare(b, a)]
    assert {d.name for d in moved(a, b)} == {d.name for d in compare(a, b) if d.pinned}


def test_only_pinned_facts_move_a_scene() -> None:
    before = Fingerprint({"gpu.driver_version": Fact.measured("580.1")}, {"host.load": Fact.measured(1)})
    now = Fingerprint({"gpu.driver_version": Fact.measured("590.2")}, {"host.load": Fact.measured(2)})
    assert [str(d) for d in moved(before, now)] == ["gpu.driver_version: 580.1 -> 590.2"]
    assert [d.name for d in compare(before, now)] == ["gpu.driver_version", "host.load"]


def test_labels_and_missing_data() -> None:
    declared = Fingerprint({"image.id": Fact.declared("sha256:1", "--image-id")})
    measured = Fingerprint({"image.id": Fact.measured("sha256:1")})
    lost = Fingerprint({"image.id": Fact.unavailable("Docker is down")})
    other = Fingerprint({"image.id": Fact.unavailable("no permission")})
    assert moved(declared, measured) == ()
    assert len(moved(measured, lost)) == 1
    assert moved(lost, other) == ()
    assert moved(lost, Fingerprint()) == ()
    assert len(moved(measured, Fingerprint())) == 1
