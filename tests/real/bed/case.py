"""One failure that record.py records: how it is brought about and what is right about its log.

The choice: the failures are tables (cases_settings.py, cases_engine.py) and this is their row. Labels follow the rules
of the project's labelled logs: the stage is the area to be put right, the root line the earliest that states the fault.
`root` is a part of that line which no line before it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.real.bed.defects import Defect

MODEL_LENGTH = 1024
API_PORT = 8271
MASTER_PORT = 29777


@dataclass(frozen=True)
class Case:
    """One launch. `model` is tiny, a damage of damaged.py, or a path or name as vLLM should see it.

    `then` names what happens to a server that became ready (record.py's AFTER); empty means that it never does.
    `prefix` is put before the program; `listen` is a port that somebody else holds; `hang` seconds after which a launch
    that neither ends nor becomes ready is killed. `alt` are stage/family pairs that are fair as well. `site` are files
    that lie before everything else on the server's path of modules. `strike` is a text in the log at which the worker
    of the second rank is killed, while the server still starts.
    """

    slug: str
    stage: str
    family: str | None
    root: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    model: str = "tiny"
    then: str = ""
    prefix: tuple[str, ...] = ()
    defects: tuple[Defect, ...] = ()
    listen: int | None = None
    hang: float = 150.0
    alt: tuple[str, ...] = ()
    site: Mapping[str, str] = field(default_factory=dict)
    strike: str = ""
