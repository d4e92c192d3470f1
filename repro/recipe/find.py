"""Where baselines and scenarios lie, and which baseline belongs to a model.

A wheel carries them inside the package (`repro/data/…`), a checkout at its top; whoever has a file of their own gives
its path.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path

from repro.domain.compatibility.hardware_rules import is_kind
from repro.errors import UsageError
from repro.recipe.load import load_recipe
from repro.recipe.model import Recipe

GENERIC = "generic"
CPU_DEMO = "cpu-demo"


def package_folder() -> Path:
    """The folder of the installed package; both ways of installing put real files there."""
    return Path(str(resources.files("repro")))


def data_folder(kind: str, package: Path | None = None) -> Path:
    """The folder of `baselines` or `scenarios`: in the wheel's package data, else at the top of the checkout."""
    package = package or package_folder()
    shipped = package / "data" / kind
    return shipped if shipped.is_dir() else package.parent / kind


def recipe_names(folder: Path | None = None) -> tuple[str, ...]:
    """The names of all baselines that came with repro, sorted."""
    return tuple(sorted(path.stem for path in (folder or data_folder("baselines")).glob("*.toml")))


def find_recipe(name_or_path: str, folder: Path | None = None) -> Recipe:
    """A baseline by its name, or by a path (anything with a slash or ending in .toml).

    Raises UsageError for an unknown name and InvalidFile for a file that cannot be used.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        return load_recipe(path).found_at(path)
    folder = folder or data_folder("baselines")
    names = recipe_names(folder)
    if name_or_path not in names:
        near = get_close_matches(name_or_path, names, n=1)
        meant = f"Did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"no recipe is called {name_or_path!r}",
            f"{meant}There are: {', '.join(names) or 'none'}. A file of your own is given by its path.",
        )
    return load_recipe(folder / f"{name_or_path}.toml")


def choose(model: str, folder: Path | None = None, gpus: Sequence[str] = ()) -> str:
    """The recipe's name for a model: the matching pattern with the most written-out letters wins, else `generic`.

    Of several for one model the hardware decides: the recipe whose GPUs these are, first those it names first. `gpus`
    are names as the driver gives them; without any that a recipe knows, the preferred recipe is taken.
    """
    folder = folder or data_folder("baselines")
    found = [load_recipe(folder / f"{name}.toml") for name in recipe_names(folder)]
    letters = {recipe.name: _letters(recipe, model.rstrip("/")) for recipe in found}
    most = max(letters.values(), default=0)
    if most <= 0:
        return GENERIC
    best = [recipe for recipe in found if letters[recipe.name] == most]
    return min(best, key=lambda recipe: (_place(recipe, gpus), not recipe.preferred)).name


def _letters(recipe: Recipe, model: str) -> int:
    """How much of the best matching pattern is written out; 0 for none, and for one that matches everything."""
    written = (sum(c not in "*?" for c in pattern) for pattern in recipe.models if fnmatchcase(model, pattern))
    return max(written, default=0)


def _place(recipe: Recipe, gpus: Sequence[str]) -> int:
    """Where these GPUs stand in the recipe's list; behind its end where it does not name them."""
    kinds = [kind.name for kind in recipe.compatibility.gpus]
    known = [i for i, kind in enumerate(kinds) if gpus and all(is_kind(name, kind) for name in gpus)]
    return known[0] if known else 1000
