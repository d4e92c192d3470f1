"""The redactor of a command: it knows this process's secrets besides what looks like one."""

from __future__ import annotations

import os
from collections.abc import Sequence

from repro.redact.environment_names import is_secret_name
from repro.redact.redactor import Redactor


def redactor_for(names: Sequence[str] = ()) -> Redactor:
    """Knows the values of this process's secret variables and of the named ones, and masks them wherever they stand."""
    known = {n: v for n, v in os.environ.items() if v and (is_secret_name(n) or n in names)}
    return Redactor(known)
