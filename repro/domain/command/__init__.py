"""A vLLM command line, understood: parsed, changed one flag at a time, compared, and written back."""

from repro.domain.command.command import Command
from repro.domain.command.config_file import apply_config, ignored_entries
from repro.domain.command.container import Container
from repro.domain.command.difference import Difference, difference
from repro.domain.command.flag import Flag, FlagValue
from repro.domain.command.flag_names import canonical, is_layout, is_listen, is_ordinal, is_secret, spec_of
from repro.domain.command.flag_spec import FlagKind, FlagSpec, Trait
from repro.domain.command.log_arguments import parse_non_default_args
from repro.domain.command.parsing import parse
from repro.domain.command.whole_numbers import as_int

__all__ = [
    "Command",
    "Container",
    "Difference",
    "Flag",
    "FlagKind",
    "FlagSpec",
    "FlagValue",
    "Trait",
    "apply_config",
    "as_int",
    "canonical",
    "difference",
    "ignored_entries",
    "is_layout",
    "is_listen",
    "is_ordinal",
    "is_secret",
    "parse",
    "parse_non_default_args",
    "spec_of",
]
