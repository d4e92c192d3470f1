"""Every way of writing a flag's name leads to one canonical name: aliases, short forms, underscores, `--no-`, dots,
prefixes.

vLLM itself accepts all of these (vllm/utils/argparse_utils.py, and argparse's unique prefixes); a name it does not
know is kept as it is and told apart by `Spelling.spec` being None.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from repro.domain.command.flag_spec import FlagKind, FlagSpec
from repro.domain.command.flag_table import CURRENT
from repro.domain.command.flag_table_old import OLD

_BY_NAME: dict[str, FlagSpec] = {name: spec for spec in (*OLD, *CURRENT) for name in (spec.name, *spec.aliases)}
_NEGATED: dict[str, FlagSpec] = {
    f"--no-{spec.name[2:]}": spec for spec in (*OLD, *CURRENT) if spec.kind is FlagKind.BOOLEAN
}
# Older versions took compilation settings by -O ('-O.level=3'); a bare -O is the optimisation level of today.
_BY_NAME["-O"] = _BY_NAME["--optimization-level"]
_DOTTED_O = _BY_NAME["--compilation-config"]


@dataclass(frozen=True)
class Spelling:
    """What a written name means. `name` is canonical and keeps a dotted path ("--compilation-config.level")."""

    name: str
    spec: FlagSpec | None
    negated: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """The keys after the flag's own name, () for a name without dots."""
        return tuple(self.name.split(".")[1:])


@lru_cache(maxsize=4096)
def read_name(written: str) -> Spelling:
    """Understand a flag's name as written on a command line ("-tp", "--no-x", "--max_model_len", "-cc.mode")."""
    base, dot, path = written.partition(".")
    if base.startswith("--"):
        base = "--" + base[2:].replace("_", "-")
    if dot:
        spec = _DOTTED_O if base == "-O" else _lookup(base)
        return Spelling((spec.name if spec else base) + dot + path, spec)
    if base in _NEGATED:
        return Spelling(_NEGATED[base].name, _NEGATED[base], negated=True)
    spec = _lookup(base)
    if spec is not None:
        return Spelling(spec.name, spec)
    if base.startswith("--no-"):
        return Spelling("--" + base[5:], None, negated=True)
    return Spelling(base, None)


def _lookup(base: str) -> FlagSpec | None:
    if base in _BY_NAME:
        return _BY_NAME[base]
    if not base.startswith("--") or len(base) < 4:
        return None
    candidates = [s for s in CURRENT for n in (s.name, *s.aliases) if n.startswith(base)]
    return candidates[0] if len(candidates) == 1 and not any(n.startswith(base) for n in _NEGATED) else None


def canonical(name: str) -> str:
    """vLLM's own long name for any way of writing it: "-tp", "tensor_parallel_size" and "--no-x" ("--x") included."""
    if not name.startswith("-"):
        base, dot, path = name.partition(".")
        name = "--" + base.replace("_", "-") + dot + path
    return read_name(name).name


def spec_of(name: str) -> FlagSpec | None:
    """What is known about a flag, by any of its names; None for one that no version of vLLM is known to have."""
    return read_name(canonical(name)).spec


def is_ordinal(name: str) -> bool:
    """True where the flag's value is a whole number for which a threshold makes sense."""
    spec = spec_of(name)
    return spec is not None and spec.ordinal


def is_layout(name: str) -> bool:
    """True for the flags that spread the model over processes, GPUs and nodes."""
    spec = spec_of(name)
    return spec is not None and spec.layout


def is_listen(name: str) -> bool:
    """True for the flags that say where and how the server is reached."""
    spec = spec_of(name)
    return spec is not None and spec.listen


def is_secret(name: str) -> bool:
    """True for the flags whose value must never be written."""
    spec = spec_of(name)
    return spec is not None and spec.secret
