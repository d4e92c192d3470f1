"""The recipe of a production command follows the GPUs of this machine, and says why it is this one."""

from __future__ import annotations

import pytest

from repro.cli import recipe_choice
from repro.cli.recipe_choice import choose_here

KIMI = "moonshotai/Kimi-K3"


def machine(monkeypatch: pytest.MonkeyPatch, *gpus: str) -> None:
    monkeypatch.setattr(recipe_choice, "gpu_names", lambda: gpus)


@pytest.mark.parametrize(
    ("gpu", "recipe"),
    [
        ("NVIDIA B300 SXM6 AC", "kimi-k3-b300"),
        ("NVIDIA GB300", "kimi-k3-gb300"),
        ("NVIDIA B200", "kimi-k3-b200-2node"),
        ("NVIDIA H200", "kimi-k3-h200-2node"),
    ],
)
def test_the_recipe_is_the_one_for_these_gpus(monkeypatch: pytest.MonkeyPatch, gpu: str, recipe: str) -> None:
    machine(monkeypatch, *[gpu] * 8)
    name, why = choose_here(KIMI)
    assert name == recipe
    assert f"the model's name and this machine's GPUs (8 x {gpu})" in why


def test_gpus_that_no_recipe_names_are_said_to_be_such(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, *["NVIDIA A100-SXM4-80GB"] * 8)
    name, why = choose_here(KIMI)
    assert name == "kimi-k3-b300"
    assert "none is for this machine's GPUs (8 x NVIDIA A100-SXM4-80GB)" in why


def test_without_gpus_the_model_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    assert choose_here(KIMI) == ("kimi-k3-b300", "recipe kimi-k3-b300, by the model's name; --recipe takes another")


def test_the_driver_is_not_asked_about_a_model_without_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    def must_not() -> tuple[str, ...]:
        raise AssertionError("the driver was asked")

    monkeypatch.setattr(recipe_choice, "gpu_names", must_not)
    assert choose_here("Qwen/Qwen3-0.6B")[0] == "generic"
