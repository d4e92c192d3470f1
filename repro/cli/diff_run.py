"""The work of `repro diff`: both scenes, their comparison, and how it is told."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click
from tabulate import tabulate

from repro.cli.masks import redactor_for
from repro.cli.output import print_json
from repro.cli.scenes import NOW, FrozenScene, open_scene, scene_now
from repro.domain.scene_difference import Comparison, SceneDifference, compare_scenes, shown
from repro.domain.scene_groups import Group
from repro.errors import EXIT_GOOD, UsageError

_WIDTH = 46
_MOST = 12  # differences of one group on the terminal; --json has all


def run_diff(before: str, now: str, *, as_json: bool) -> int:
    """Compares, tells, and returns the exit code. Raises UsageError and InvalidFile."""
    if before == NOW:
        raise UsageError("A is `now`", f"the older side comes first: repro diff {now} now")
    left = open_scene(before)
    right = scene_now(left, redactor_for()) if now == NOW else open_scene(now)
    comparison = compare_scenes(left.node, right.node)
    if as_json:
        sides = {"a": {"name": left.name, "node": left.node.name}, "b": {"name": right.name, "node": right.node.name}}
        print_json("diff", {**sides, **comparison.as_json()})
    else:
        click.echo("\n".join(_text(left, right, comparison)))
    return EXIT_GOOD


def _text(left: FrozenScene, right: FrozenScene, comparison: Comparison) -> Iterator[str]:
    yield f"{left.name} ({left.node.name}) -> {right.name} ({right.node.name})"
    for case in comparison.cases:
        yield ""
        yield from textwrap.wrap(f"{case.what}.", 100, break_on_hyphens=False)
        yield from textwrap.wrap(case.mend, 100, initial_indent="  mend: ", subsequent_indent=" " * 8)
    for group in Group:
        found = comparison.of(group)
        known = [d for d in found if d.both_known]
        if known:
            yield ""
            yield tabulate(_rows(known), headers=[str(group), "A", "B"], tablefmt="simple", disable_numparse=True)
        if len(known) > _MOST:
            yield f"… and {len(known) - _MOST} more; --json has all"
    one_sided = [d.name for d in comparison.differences if not d.both_known]
    if one_sided:
        yield ""
        text = f"known on one side alone, so not compared: {', '.join(one_sided)}"
        yield from textwrap.wrap(text, 100, break_on_hyphens=False)


def _rows(found: list[SceneDifference]) -> list[list[str]]:
    return [[d.name, _cell(d.before), _cell(d.now)] for d in found[:_MOST]]


def _cell(value: object) -> str:
    text = shown(value)
    return "\n".join(textwrap.wrap(text, _WIDTH, max_lines=3, placeholder=" …", break_on_hyphens=False)) or '""'
