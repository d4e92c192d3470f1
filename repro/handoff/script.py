"""Writes `reproduce.sh` and `curl.sh`: POSIX shell that starts a side by hand, with nothing but the program and curl.

The body is the same in every bundle (`reproduce_body.sh`); in front of it stands one function a side, which sets what
is known about it, and `choose`, which picks one. Words are quoted one by one; secrets are passed on by name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files

from repro.domain.command import Command
from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.handoff.case import Case, Pair, Side
from repro.handoff.english import say
from repro.handoff.log_excerpt import plain
from repro.redact.redactor import Redactor
from repro.runner.environment import BASE_NAMES

_PORT_HERE = "REPRO-PORT-HERE"
_HANGS = {Family.HANG.value, Family.TIMEOUT.value, Family.RENDEZVOUS_TIMEOUT.value}
# Functions that only some sides use or a trap calls; and words of a list that must not be read in a subshell.
_SHELLCHECK = "# shellcheck disable=SC2013,SC2317,SC2329"
_API_KEY = "VLLM_API_KEY"
# What stands in a root line's template for something that changes from run to run.
_CHANGING = re.compile(r"<(?:url|time|id|path|address|hex|n)>")


def reproduce_sh(case: Case, requests: Mapping[str, Sequence[str]], redactor: Redactor) -> str:
    """The script. `requests` gives, by trial id, the names of the body files in the bundle."""
    parts = [
        "#!/bin/sh",
        _SHELLCHECK,
        f"# {say('script_head', session=case.session)}",
        f"# {say('script_use')}",
        "set -eu",
        "",
    ]
    numbers = {side.id: number for number, side in enumerate(case.sides, 1)}
    for side in case.sides:
        parts += [*_side(case, side, numbers[side.id], requests.get(side.id, ()), redactor), ""]
    parts += [*_choose(case.pairs, numbers), ""]
    return "\n".join(parts) + files("repro.handoff").joinpath("reproduce_body.sh").read_text(encoding="utf-8")


def curl_sh(side: Side, requests: Sequence[str]) -> str:
    """Sends the bodies of one side to a server that runs already, as many at once as the search did."""
    width = max(1, side.requests.at_once) if side.requests else 1
    path = side.requests.path if side.requests else side.shape.path
    lines = ["#!/bin/sh", f"# {say('curl_head')}", "set -eu", "BASE=${1:-http://127.0.0.1:18000}"]
    lines += ['HERE=$(CDPATH=\'\' cd -- "$(dirname -- "$0")" && pwd)']
    key = ""
    if _API_KEY in passed_names(side):
        key = "-K - "
        lines += [f'[ -n "${{{_API_KEY}-}}" ] || {{ echo "{_API_KEY} is not set" >&2; exit 125; }}']
        lines += [f'CURL_CONFIG=$(printf \'header = "%s: Bearer %s"\' Authorization "${_API_KEY}")']
    for number, file in enumerate(requests, 1):
        before = "printf '%s' \"$CURL_CONFIG\" | " if key else ""
        lines.append(
            f"{before}curl --noproxy '*' {key}-sS -i -m {side.shape.expectation.deadline_s:.0f} "
            f'-H \'Content-Type: application/json\' --data-binary "@$HERE/{file}" "$BASE"{shlex.quote(path)} &'
        )
        if number % width == 0 or number == len(requests):
            lines.append("wait")
    return "\n".join([*lines, ""])


def command_text(command: Command, side_environment: Sequence[tuple[str, str]], passed: Sequence[str]) -> str:
    """One command for people to copy: what must be set, then one shell line, environment first."""
    own = {name for name, _ in command.environment}
    pairs = [f"{name}={shlex.quote(value)}" for name, value in side_environment if name not in own]
    line = replace(command, environment_from=()).shell()
    head = f"# {say('needs_names', names=', '.join(passed))}\n" if passed else ""
    if pairs and command.prelude and not command.wrapper:
        return f"{head}export {' '.join(pairs)}; {line}\n"
    return f"{head}{' '.join((*pairs, line))}\n"


def side_text(side: Side, redactor: Redactor) -> str:
    """The command of a side, masked."""
    return redactor.text(command_text(side.launch.command, side.launch.environment, passed_names(side)))


def passed_names(side: Side) -> tuple[str, ...]:
    names = {*side.launch.environment_from, *side.launch.command.environment_from}
    written = {name for name, _ in (*side.launch.environment, *side.launch.command.environment)}
    return tuple(sorted(names - written))


def _side(case: Case, side: Side, number: int, requests: Sequence[str], redactor: Redactor) -> Iterator[str]:
    command = side.launch.command
    argv = redactor.argv(_listening(command).argv())
    expect = side.shape.expectation
    failure = _failure(case, side)
    secure = "https" if command.flag("--ssl-certfile") or command.flag("--ssl-keyfile") else "http"
    facts = {
        "TITLE": say("side_title", trial=side.id, outcome=say(f"side_{side.trial['outcome']}")),
        "EXPECT": "fail" if side.failed else "pass",
        "ROOT": redactor.text(_fixed_part(failure.get("root_template", ""))),
        "HANGS": "yes" if failure.get("family") in _HANGS else "no",
        "JUDGED_BY": "text" if failure.get("family") == Family.BAD_OUTPUT.value else "status",
        "FAULT": plain(redactor.text(str(side.trial["detail"])))[:300],
        "NEEDS_REQUEST": "no" if _ends_before_requests(case) else "yes",
        "REQUESTS": " ".join(requests),
        "AT_ONCE": str(side.requests.at_once if side.requests else side.shape.concurrency),
        "REQUEST_PATH": side.requests.path if side.requests else side.shape.path,
        "EXPECTED_STATUS": str(expect.status),
        "DEADLINE": f"{max(1.0, expect.deadline_s):.0f}",
    }
    yield f"side_{number}() {{"
    yield from (f"  {name}={shlex.quote(value)}" for name, value in facts.items())
    yield f'  BASE="{secure}://127.0.0.1:$PORT"'
    yield from (f"  needs_program {shlex.quote(word)}" for word in dict.fromkeys((argv[0], command.program[0])))
    if command.model is not None and command.model.startswith(("/", "./", "../")):
        yield f"  needs_path {shlex.quote(redactor.text(command.model))} model"
    passed = passed_names(side)
    yield from (f'  needs_variable {name} "${{{name}-}}"' for name in passed)
    if _API_KEY in passed:
        yield f'  CURL_CONFIG=$(printf \'header = "%s: Bearer %s"\' Authorization "${_API_KEY}")'
    yield "  start() {"
    yield from (f"    {line}" for line in _start(side, argv, passed, redactor))
    yield "  }"
    yield "}"


def _start(side: Side, argv: Sequence[str], passed: Sequence[str], redactor: Redactor) -> Iterator[str]:
    """The server with its whole environment and nothing else of ours, as the search started it."""
    yield "set -- \\"
    words = [_word(word) for word in argv]
    yield from (f"  {word} \\" for word in words[:-1])
    yield f"  {words[-1]}"
    yield '[ -z "$OWN_SESSION" ] || set -- setsid "$@"'
    # After the words above, which use variables of this script that the caller may have exported.
    yield f"keep_only {' '.join((*BASE_NAMES, *passed))}"
    written = {**dict(side.launch.environment), **dict(side.launch.command.environment)}
    for name in sorted(written):
        (pair,) = redactor.argv((f"{name}={written[name]}",))
        yield f"export {name}={shlex.quote(pair.partition('=')[2])}"
    yield 'exec "$@"'


def _word(word: str) -> str:
    """One argument in shell quotes, the port left to the one who runs the script."""
    quoted = shlex.quote(word)
    if not quoted.startswith("'"):
        return quoted.replace(_PORT_HERE, '"$PORT"')
    return quoted.replace(_PORT_HERE, "'\"$PORT\"'")


def _listening(command: Command) -> Command:
    return command.with_flag("--uds", None).with_flag("--host", "127.0.0.1").with_flag("--port", _PORT_HERE)


def _failure(case: Case, side: Side) -> Mapping[str, str]:
    """The failure that a side must show: its own, or none for a side that passed."""
    answers = (e["answer"] for e in case.events if e["event"] == "finished" and e["answer"]["trial"] == side.id)
    return next((answer.get("failure") or {} for answer in answers), {})


def _ends_before_requests(case: Case) -> bool:
    """Whether the fault shows while the server starts, so that no request is needed to see it."""
    return all(p.failing.failed and p.failing.trial["stage"] != Stage.SERVING.value for p in case.pairs)


def _fixed_part(template: str) -> str:
    """The longest piece of a root line's template that no run changes; empty where it is too short to tell."""
    longest = max((part.strip() for part in _CHANGING.split(template)), key=len, default="")
    return longest if len(longest) >= 12 else ""


def _choose(pairs: Sequence[Pair], numbers: Mapping[str, int]) -> Iterator[str]:
    names = [pair.variable for pair in pairs if pair.variable]
    several = len(names) > 1
    yield "list() {"
    yield from (f"  echo {shlex.quote(name)}" for name in names)
    yield "  :"
    yield "}"
    yield ""
    yield (
        f"is_name() {{ case $1 in {'|'.join(map(shlex.quote, names))}) return 0 ;; *) return 1 ;; esac; }}"
        if (names)
        else "is_name() { return 1; }"
    )
    yield ""
    yield "choose() {"
    yield "  case $1 in"
    for place, pair in enumerate(pairs):
        keys = ["failing:"] if place == 0 else []
        keys += [f"failing:{pair.variable}"] if pair.variable else []
        yield f"    {' | '.join(shlex.quote(k) for k in keys)}) side_{numbers[pair.failing.id]} ;;"
        if pair.passing is not None:
            keys = [f"passing:{pair.variable}", *([] if several else ["passing:"])]
            yield f"    {' | '.join(shlex.quote(k) for k in keys)}) side_{numbers[pair.passing.id]} ;;"
    shown = ", ".join(names)
    yield f"    *) echo {shlex.quote(say('no_such_side', names=shown) if names else say('no_passing_side'))} >&2"
    yield "       exit 2 ;;"
    yield "  esac"
    yield "}"
