"""Version numbers of vLLM, drivers and CUDA: which is at least which, and which cannot be compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.domain.compatibility.image_rules import name_and_tag
from repro.domain.release import at_least, between_releases, local_part, release


@pytest.mark.parametrize(
    ("version", "minimum", "answer"),
    [
        ("0.27.1", "0.27.1", True),
        ("v0.29.0", "0.27.1", True),
        ("0.27.0", "0.27.1", False),
        ("0.27.1rc1", "0.27.1", False),
        ("0.27.1.dev3+gabc123", "0.27.1", False),
        ("0.27.1+cu130", "0.27.1", True),
        ("0.27.1.post1", "0.27.1", True),
        ("0.28.0rc1", "0.27.1", True),
        ("0.1.dev19262+gb6bbf29dd.d20260727", "0.27.1", None),
        ("dev", "0.27.1", None),
        ("580.82.07", "580", True),
        ("580", "580", True),
        ("575.57.08", "580", False),
        ("13.0", "13.0", True),
        ("13", "13.0", True),
        ("12.9", "13.0", False),
    ],
)
def test_at_least(version: str, minimum: str, answer: bool | None) -> None:
    assert at_least(version, minimum) is answer


@given(st.lists(st.integers(0, 999), min_size=1, max_size=4), st.lists(st.integers(0, 999), min_size=1, max_size=4))
def test_plain_numbers_compare_as_tuples(left: list[int], right: list[int]) -> None:
    # 0.0.0 is what an untagged checkout calls itself.
    left[0] += 1
    a, b = ".".join(map(str, left)), ".".join(map(str, right))
    assert at_least(a, b) is (release(a) >= release(b))


@pytest.mark.parametrize(
    ("version", "between", "local"),
    [
        ("0.29.0", False, ""),
        ("0.32.0+cpu", False, "cpu"),
        ("2.11.0+cu130", False, "cu130"),
        ("0.30.0rc1.dev5+gabcdef01", True, "gabcdef01"),
        ("0.29.0+g98dff2a8", True, "g98dff2a8"),
    ],
)
def test_builds_between_releases(version: str, between: bool, local: str) -> None:
    assert (between_releases(version), local_part(version)) == (between, local)


@pytest.mark.parametrize(
    ("image", "name", "tag"),
    [
        ("vllm/vllm-openai:kimi-k3", "vllm/vllm-openai", "kimi-k3"),
        ("vllm/vllm-openai", "vllm/vllm-openai", "latest"),
        ("vllm/vllm-openai@sha256:ab", "vllm/vllm-openai", ""),
        ("vllm/vllm-openai:v1@sha256:ab", "vllm/vllm-openai", "v1"),
        ("registry:5000/vllm", "registry:5000/vllm", "latest"),
        ("registry:5000/vllm:mine", "registry:5000/vllm", "mine"),
    ],
)
def test_an_images_name_and_its_tag(image: str, name: str, tag: str) -> None:
    assert name_and_tag(image) == (name, tag)
