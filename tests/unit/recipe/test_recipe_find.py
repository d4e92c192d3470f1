"""Baselines: the shipped ones are good, are found in both kinds of installation, and fit the right models."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from repro.errors import InvalidFile, UsageError
from repro.recipe.find import choose, data_folder, find_recipe, package_folder, recipe_names
from repro.recipe.model import Recipe


def test_the_shipped_baselines_are_good_and_named_after_their_files() -> None:
    assert recipe_names() == (
        *("cpu-demo", "generic", "kimi-k3-b200-2node", "kimi-k3-b300"),
        *("kimi-k3-gb300", "kimi-k3-h200-2node", "kimi-k3-mi355x"),
    )
    for name in recipe_names():
        assert find_recipe(name).name == name


def test_kimi_k3_needs_what_its_recipe_says() -> None:
    recipe = find_recipe("kimi-k3-b300")
    assert recipe.minimal_argv == (
        *("vllm", "serve", "moonshotai/Kimi-K3", "--tensor-parallel-size", "8"),
        *("--trust-remote-code", "--load-format", "fastsafetensors"),
    )
    assert recipe.request is not None
    assert recipe.request.body["model"] == "moonshotai/Kimi-K3"
    assert recipe.origin is not None
    assert recipe.origin.commit == "8959cf6"
    assert [(g.name, g.count_min) for g in recipe.compatibility.gpus] == [("B300", 8), ("GB300", 8)]


@pytest.mark.parametrize(
    ("version", "on"),
    [
        ("0.27.1", False),
        ("0.27.1rc1.dev3+gabc", False),
        ("0.28.0", True),
        ("0.28", True),
        ("0.32.0", True),
        (None, True),
    ],
)
def test_hybrid_models_cache_prefixes_by_default_from_028(version: str | None, on: bool) -> None:
    assert find_recipe("kimi-k3-b300").caches_prefixes(version) is on


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("moonshotai/Kimi-K3", "kimi-k3-b300"),
        ("/models/Kimi-K3/", "kimi-k3-b300"),
        ("/hub/models--moonshotai--Kimi-K3/snapshots/9f62", "kimi-k3-b300"),
        ("moonshotai/Kimi-K2", "generic"),
        ("Qwen/Qwen3-0.6B", "generic"),
        ("", "generic"),
    ],
)
def test_the_most_written_out_pattern_chooses(model: str, name: str) -> None:
    assert choose(model) == name


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA B300 SXM6 AC", "kimi-k3-b300"),
        ("NVIDIA GB300", "kimi-k3-gb300"),
        ("NVIDIA GB200", "kimi-k3-gb300"),
        ("NVIDIA B200", "kimi-k3-b200-2node"),
        ("NVIDIA H200", "kimi-k3-h200-2node"),
        ("AMD Instinct MI355X OAM", "kimi-k3-mi355x"),
        ("NVIDIA A100-SXM4-80GB", "kimi-k3-b300"),
    ],
)
def test_the_hardware_decides_between_recipes_for_one_model(gpu: str, name: str) -> None:
    assert choose("moonshotai/Kimi-K3", gpus=[gpu] * 8) == name
    assert choose("Qwen/Qwen3-0.6B", gpus=[gpu] * 8) == "generic"


def test_mixed_or_unknown_hardware_takes_the_preferred_recipe() -> None:
    assert choose("moonshotai/Kimi-K3", gpus=["NVIDIA B200", "NVIDIA H200"]) == "kimi-k3-b300"
    preferred = [name for name in recipe_names() if find_recipe(name).preferred]
    assert preferred == ["kimi-k3-b300"]


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_says_where_and_when_it_was_read(name: str) -> None:
    origin = find_recipe(name).origin
    assert origin is not None
    assert origin.source.startswith("https://")
    assert origin.commit


def test_a_wheel_carries_its_data_inside_the_package_and_a_checkout_beside_it(tmp_path: Path) -> None:
    package = tmp_path / "site" / "repro"
    package.mkdir(parents=True)
    assert data_folder("baselines", package) == tmp_path / "site" / "baselines"
    shutil.copytree(data_folder("baselines"), package / "data" / "baselines")
    assert data_folder("baselines", package) == package / "data" / "baselines"
    assert find_recipe("generic", data_folder("baselines", package)) == find_recipe("generic")
    assert data_folder("scenarios").is_dir()
    assert (package_folder() / "errors.py").is_file()


def test_an_unknown_name_is_answered_with_the_near_one_and_the_list() -> None:
    with pytest.raises(UsageError) as caught:
        find_recipe("kimi-k3-b30")
    assert "Did you mean kimi-k3-b300?" in caught.value.hint
    assert "cpu-demo, generic" in caught.value.hint


def test_a_recipe_of_ones_own_is_given_by_path(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text((data_folder("baselines") / "generic.toml").read_text().replace('"generic"', '"own"'))
    assert find_recipe(str(own)).name == "own"
    with pytest.raises(InvalidFile, match=r"none\.toml: cannot be read"):
        find_recipe(str(tmp_path / "none.toml"))


def test_the_digest_counts_what_is_said_and_not_how_it_is_laid_out(tmp_path: Path) -> None:
    text = (data_folder("baselines") / "generic.toml").read_text()

    def digest_of(changed: str) -> str:
        (tmp_path / "r.toml").write_text(changed)
        recipe: Recipe = find_recipe(str(tmp_path / "r.toml"))
        return recipe.digest

    assert digest_of(text + "\n# a remark\n") == find_recipe("generic").digest
    assert digest_of(text.replace("fits_one_node = false", "fits_one_node = true")) != find_recipe("generic").digest


def test_a_required_flag_must_look_like_one(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(
        'schema = "repro/recipe"\nversion = 1\nname = "r"\ntitle = "R"\nfits_one_node = true\n'
        '[required]\nas_production = ["tokenizer"]\n'
    )
    with pytest.raises(InvalidFile, match=r"'tokenizer' is no long flag; write it as --tokenizer"):
        find_recipe(str(path))
