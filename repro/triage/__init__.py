"""Log text in, first failing stage out: offline and live are one code, markers and failure patterns are data tables."""

from repro.triage.advice import Advice, advice_for
from repro.triage.diagnosis import Diagnosis, ExitEvidence
from repro.triage.group import GroupDiagnosis, Member, first_failing
from repro.triage.progress import Reached
from repro.triage.stream import Triage, triage_file, triage_text
from repro.triage.table_files import shipped_table, with_files
from repro.triage.tables import PatternTable
from repro.triage.template import template

__all__ = [
    "Advice",
    "Diagnosis",
    "ExitEvidence",
    "GroupDiagnosis",
    "Member",
    "PatternTable",
    "Reached",
    "Triage",
    "advice_for",
    "first_failing",
    "shipped_table",
    "template",
    "triage_file",
    "triage_text",
    "with_files",
]
