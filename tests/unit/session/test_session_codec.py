"""What the journal holds comes back as the same values."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from repro.domain.failure import Failure, Family
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.stage import Stage
from repro.domain.trial import Answer, Cost, ServerFacts
from repro.domain.variable import Configuration, Value
from repro.session.codec import answer_from_json, answer_to_json, configuration_from_json, value_to_json

stages = st.sampled_from(list(Stage))
failures = st.builds(
    Failure,
    stage=stages,
    family=st.sampled_from(list(Family)),
    root_line=st.none() | st.text(),
    root_line_no=st.none() | st.integers(1, 10**9),
    root_template=st.text(),
    consequences=st.lists(st.integers(1)).map(tuple),
    reached=st.lists(stages).map(tuple),
    vllm_version=st.none() | st.text(),
    confidence=st.floats(0, 1),
    detail=st.text(),
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Passed, st.lists(stages).map(tuple)), st.builds(Failed, failures), st.builds(Unresolved, st.text())
)
values: st.SearchStrategy[Value] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.lists(st.text()).map(tuple)
)


@given(
    outcomes,
    st.integers(0, 9),
    st.none() | st.builds(ServerFacts, st.text(), st.text(), st.integers(0), st.booleans()),
    st.integers(0, 3),
)
def test_answers_round_trip(outcome: Outcome, missed: int, server: ServerFacts | None, launches: int) -> None:
    answer = Answer("id-0", outcome, missed, 9, Cost(launches, 1.5), server)
    assert answer_from_json(json.loads(json.dumps(answer_to_json(answer)))) == answer


@given(st.dictionaries(st.text(), values))
def test_configurations_round_trip_with_equal_digests(data: dict[str, Value]) -> None:
    configuration = Configuration.of(data)
    shown = {name: value_to_json(value) for name, value in configuration.values}
    again = configuration_from_json(json.loads(json.dumps(shown)))
    assert again == configuration
    assert again.digest == configuration.digest
