"""`repro bundle`: a finished search as one archive for whoever mends it."""

from __future__ import annotations

from pathlib import Path

import click

from repro.cli.options import FILE, json_option


@click.command("bundle")
@click.argument("session", required=False)
@click.option("-o", "--output", type=FILE, help="Where to write it.  [default: SCENE-SESSION.tar.gz in this folder]")
@json_option
def command(session: str | None, output: Path | None, as_json: bool) -> int:
    """Pack SESSION (the newest, if absent): report, a script that repeats the failure, requests, logs, checksums.

    Nothing is started. Every file is looked through for secrets first; on a hit nothing is written.
    """
    from repro.cli.masks import redactor_for
    from repro.cli.output import print_json
    from repro.cli.wiring import JOURNAL, session_scene
    from repro.errors import EXIT_GOOD, InvalidFile
    from repro.handoff.bundle import write_bundle
    from repro.session.journal import read
    from repro.session.workspace import Workspace

    folder = Workspace.open(Path.cwd()).existing("sessions", session)
    events, _ = read(folder / JOURNAL)
    if not events or events[0]["event"] != "session":
        raise InvalidFile(f"{folder / JOURNAL}: holds no session", "begin a new search")
    scene = session_scene(folder, events[0])
    bundle = write_bundle(folder, events, scene, redactor_for(scene.environment_from), output)
    if as_json:
        facts = {key: value for key, value in bundle.manifest.items() if key not in ("schema", "version")}
        print_json("bundle", {"archive": str(bundle.path), "sha256": bundle.sha256, "bytes": bundle.size, **facts})
        return EXIT_GOOD
    click.echo(f"{bundle.path}: {len(bundle.manifest['files'])} files, {bundle.size:,} bytes")
    click.echo(f"sha256 {bundle.sha256}")
    click.echo("next: unpack it, read REPORT.md, run `sh reproduce.sh`")
    return EXIT_GOOD
