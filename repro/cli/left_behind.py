"""What a killed repro left behind in a workspace: its servers are stopped and said, its raw logs masked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from repro.cli.masks import redactor_for
from repro.cli.output import talk
from repro.cli.wiring import LOGS, SCENARIO
from repro.errors import ReproError
from repro.machine.clock import Clock
from repro.machine.family import is_output_held
from repro.recipe.assemble import load_scenario
from repro.redact.redactor import Redactor
from repro.runner.sweep import Orphan, Swept, sweep
from repro.session.workspace import Workspace
from repro.trial.keep import MaskedLogs


@contextmanager
def working(what: str, clock: Clock) -> Iterator[Workspace]:
    """The workspace of this folder, held for one command and cleared of what was left behind.

    Raises WorkspaceUnusable, or WorkspaceBusy naming the holder.
    """
    workspace = Workspace.open(Path.cwd())
    with workspace.locked(what):
        for swept in sweep(workspace.servers, clock):
            for line in swept_lines(swept):
                talk(line)
        mask_left_logs(workspace)
        yield workspace


def orphan_line(orphan: Orphan) -> str:
    """One server whose repro is gone, with what is still there of it."""
    there = [f"process {pid}" for pid in orphan.pids] + [f"container {name[:12]}" for name in orphan.containers]
    what = ", ".join(there) or orphan.unknown or "nothing of it is left but its record"
    return f"server {orphan.id}: {what} (log {orphan.log})"


def swept_lines(swept: Swept) -> list[str]:
    """What became of one server; nothing where nothing of it was there any more."""
    lines = []
    ended = [f"pids {_listed(swept.ended)}"] if swept.ended else []
    ended += [f"containers {_listed(swept.containers)}"] if swept.containers else []
    if ended:
        lines.append(f"stopped server {swept.id} of an earlier repro that was killed ({', '.join(ended)})")
    if swept.left:
        lines.append(
            f"server {swept.id} of an earlier repro does not end (pids {_listed(swept.left)}) and may hold GPU memory: "
            "end it by hand"
        )
    elif not swept.gone:
        lines.append(
            f"server {swept.id} of an earlier repro may still run: {swept.problem or 'something holds its log open'}; "
            "`repro clean` tries again"
        )
    return lines


def mask_left_logs(workspace: Workspace) -> None:
    """The logs that a killed repro could not mask and compress any more. The workspace must be held."""
    for log in sorted(workspace.root.glob(f"*/*/{LOGS}/server-*.log")):
        if not is_output_held(log):
            MaskedLogs(_redactor_of(log.parent.parent))(log)


def _redactor_of(folder: Path) -> Redactor:
    """Knows the secrets that the scenario in this session's or run's folder passes on, as far as they are set here."""
    try:
        names = load_scenario(folder / SCENARIO).environment_from
    except ReproError:
        names = ()
    return redactor_for(names)


def _listed(names: tuple[object, ...]) -> str:
    return ", ".join(map(str, names))
