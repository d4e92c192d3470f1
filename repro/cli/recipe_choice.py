"""Which recipe a production command is held against: by its model, and by this machine's GPUs where that decides."""

from __future__ import annotations

from collections import Counter

from repro.domain.compatibility.hardware_rules import is_kind
from repro.machine.nvml import gpu_names
from repro.recipe.find import GENERIC, choose, find_recipe


def choose_here(model: str) -> tuple[str, str]:
    """The recipe's name and why it is this one. The driver is asked only about a model that has recipes of its own."""
    name = choose(model)
    gpus = gpu_names() if name != GENERIC else ()
    if not gpus:
        return name, f"recipe {name}, by the model's name; --recipe takes another"
    name = choose(model, gpus=gpus)
    shown = ", ".join(f"{count} x {gpu}" for gpu, count in Counter(gpus).items())
    kinds = [kind.name for kind in find_recipe(name).compatibility.gpus]
    if any(all(is_kind(gpu, kind) for gpu in gpus) for kind in kinds):
        return name, f"recipe {name}, by the model's name and this machine's GPUs ({shown}); --recipe takes another"
    return (
        name,
        f"recipe {name}, by the model's name: none is for this machine's GPUs ({shown}); --recipe takes another",
    )
