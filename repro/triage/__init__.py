"""Log text in, first failing stage out: offline and live are one code, markers and failure patterns are data tables."""

from repro.triage.diagnosis import Diagnosis, ExitEvidence
from repro.triage.progress import Reached
from repro.triage.stream import Triage, triage_file, triage_text
from repro.triage.tables import PatternTable, shipped_table
from repro.triage.template import template

__all__ = [
    "Diagnosis",
    "ExitEvidence",
    "PatternTable",
    "Reached",
    "Triage",
    "shipped_table",
    "template",
    "triage_file",
    "triage_text",
]
