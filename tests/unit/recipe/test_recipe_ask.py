"""From a recipe's file to the conditions that facts are compared with."""

from __future__ import annotations

import pytest

from repro.domain.compatibility import GpuKind
from repro.recipe.ask import conditions_of
from repro.recipe.find import find_recipe, recipe_names


def test_what_the_file_says_is_what_is_asked() -> None:
    asked = conditions_of(find_recipe("kimi-k3-b300"))
    assert (asked.driver_min, asked.cuda_min, asked.vllm_min) == ("580", "13.0", "0.27.1")
    assert asked.gpus == (GpuKind("B300", 8), GpuKind("GB300", 8))
    assert (asked.memory_min, asked.weight_files, asked.weight_bytes) == (1680 * 10**9, 96, 1500 * 10**9)
    assert [pattern for pattern, _ in asked.image.forbidden_tags] == ["*cu129*", "*cu128*"]
    assert asked.command.prefix_caching_default == (("0.28", False), ("", True))
    assert asked.command.expected["--enable-flashinfer-autotune"] is False


def test_a_recipes_own_numbers_are_recommended_and_its_switches_required() -> None:
    asked = conditions_of(find_recipe("kimi-k3-h200-2node")).command
    assert asked.required["--disable-custom-all-reduce"] is True
    assert asked.required["--tensor-parallel-size"] == "16"
    assert "--max-num-seqs" not in asked.required
    assert asked.expected["--max-num-seqs"] == "5"


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.startswith("kimi-k3")])
def test_every_kimi_k3_recipe_asks_for_the_same_model(name: str) -> None:
    asked = conditions_of(find_recipe(name))
    assert asked.model == "moonshotai/Kimi-K3"
    assert (asked.vllm_min, asked.weight_files, asked.command.tool_parser) == ("0.27.1", 96, "kimi_k3")
    # NVIDIA's layouts need R580 and CUDA 13; ROCm has neither.
    assert (asked.driver_min is None) == (asked.cuda_min is None) == (asked.platform == "rocm")
    assert asked.image.pinned
