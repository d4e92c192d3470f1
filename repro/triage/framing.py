"""Takes off what stands before a message and says who printed it.

One line may wear several coats (container time stamps, a compose name, nested process prefixes, a launcher's own
header, colours). They are taken off from the outside in, one at a time, until none fits, so that every order of coats
works. What is left keeps its indentation, because a traceback is told apart from a message by it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime

ERROR_LEVELS = frozenset({"ERROR", "CRITICAL", "FATAL"})
LOW_LEVELS = frozenset({"DEBUG", "INFO", "TRACE", "WARNING"})
_MAX_COATS = 8
_MAX_HEADER_AT = 400  # a progress bar of usual width may stand before a header on the same line

_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\[(?:0|[01];[0-9]{1,2}|[0-9]{1,2}|0;0)m")
_REPEATED = re.compile(r" *\[repeated \d+x across cluster\].*$")
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?Z| ?[+-]\d\d:?\d\d)?"
_LAUNCHER = re.compile(rf"{_STAMP} - [\w.]+ - {_LEVEL} - ")
_STAMPED = re.compile(rf"\[?{_STAMP}\]?(?: std(?:err|out) [FP])?(?: |$)")
_JOURNAL = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w.@/-]+(?:\[\d+\])?: ")
_BRACKET = re.compile(r"\[pod/[^\]]+\] |\[[A-Za-z][\w./-]{1,60}\]: ")
# kubectl's events: columns that are two blanks apart
_EVENT = re.compile(r" *(?:\S{1,12} {2,})?(?:Normal|Warning) {2,}\w+ {2,}(?:[^ ]+(?: [^ ]+){0,6} {2,}){1,2}")
_COMPOSE = re.compile(r"(?:\[[\w./-]{1,60}\]|[A-Za-z0-9][\w.-]{0,60}) *\| ")
_LONGEST_NAME = 80  # characters that compose's or a launcher's name may take before its bar
_PROCESS = re.compile(
    r"\((?:(?P<name>[A-Za-z][^()=]{0,60}?(?: rank=\d+)?) )?pid=(?P<pid>\d+)(?P<ip>, ip=[^)]+)?\)(?: |$)"
)
_RANK = re.compile(r"\[rank(?P<rank>\d+)\]: ?")
_HEADER = re.compile(
    _LEVEL + r" (?:(?P<clock>\d\d-\d\d \d\d:\d\d(?::\d\d)?)(?:[.,]\d+)? )?(?P<source>\[?[\w./<>-]+:\d+\])(?: |$)"
)
_UVICORN = re.compile(r"(?P<level>INFO|WARNING|ERROR|CRITICAL|DEBUG|TRACE): {2,}")
_GLOG = re.compile(
    r"(?:\[rank(?P<rank>\d+)\]:)?\[?(?P<letter>[IWEF])"
    r"\d{3,4} \d\d:\d\d:\d\d\.\d+(?: +\d+)? (?P<source>[\w./+-]+:\d+)\] ?"
)
_NCCL = re.compile(
    r"(?:\[[\d :.-]+\] )?(?P<process>[\w.-]+:\d+):\d+ \[-?\d+\] "
    r"(?:[\w./() ]+:\d+ )?NCCL (?P<level>INFO|WARN|ERROR|TRACE) "
)
_GLOG_LEVEL = {"I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL"}
_JSON_TEXT = ("log", "message", "msg", "text", "event")


@dataclass(frozen=True)
class Frame:
    """One line without its coats.

    `process` is the innermost name printed (`Worker_TP1`), `level` upper case or None where the line says none,
    `source` the `file.py:line` of a log header, `clock` its `MM-DD HH:MM:SS`. `remote`: relayed from another host,
    whose clock may differ.
    """

    message: str
    process: str | None = None
    pid: str | None = None
    level: str | None = None
    source: str | None = None
    clock: str | None = None
    native: bool = False
    remote: bool = False

    @property
    def stream(self) -> tuple[str, str, str]:
        """Lines of one traceback share it: same process, same place that logs (uvicorn prefixes only the first)."""
        place = (self.source or "") if self.native else ("" if self.level is None or self.is_error else self.level)
        return (self.process or "", self.pid or "", place)

    @property
    def is_error(self) -> bool:
        return self.level in ERROR_LEVELS

    @property
    def is_low(self) -> bool:
        return self.level in LOW_LEVELS


def split_bar(line: str) -> list[str]:
    """Parts of a line between carriage returns, as a terminal would have shown them one after the other."""
    return [part for part in line.split("\r") if part.strip()] if "\r" in line else [line]


def frame(line: str) -> Frame:
    """Takes every known coat off `line` (without its line end)."""
    text = line
    if text.startswith("{") and text.rstrip().endswith("}"):
        text = _from_json(text) or text
    if "\x1b" in text or "m(" in text or "[0m" in text:
        text = _ANSI.sub("", text)
    if "across cluster]" in text:
        text = _REPEATED.sub("", text)
    process = pid = level = None
    remote = False
    for _ in range(_MAX_COATS):
        found = _coat(text)
        if found is None:
            break
        if found.re is _LAUNCHER:
            level = found["level"]
        elif found.re is _PROCESS:
            process, pid = found["name"] or process, found["pid"]
            remote = remote or found["ip"] is not None
        elif found.re is _RANK:
            process = process or f"rank{found['rank']}"
        text = text[found.end() :]
    return _header(text, process, pid, level, remote)


def _coat(text: str) -> re.Match[str] | None:
    """The outermost coat of `text`; its first character rules most of them out."""
    first = text[:1]
    if first == "(":
        return _PROCESS.match(text)
    found = None
    if first == "[":
        found = _RANK.match(text) or _STAMPED.match(text) or _BRACKET.match(text)
    elif first.isdigit():
        found = _LAUNCHER.match(text) or _STAMPED.match(text)
    elif first.isupper():
        found = _JOURNAL.match(text)
    if found is None and "| " in text[:_LONGEST_NAME]:
        found = _COMPOSE.match(text)
    if found is None and ("Warning  " in text or "Normal  " in text):
        found = _EVENT.match(text)
    return found


def _header(text: str, process: str | None, pid: str | None, level: str | None, remote: bool) -> Frame:
    """Reads the logger's own header: vLLM's, uvicorn's, torch C++, NCCL."""
    found = _HEADER.match(text) or (
        _HEADER.search(text, 0, _MAX_HEADER_AT) if not text.startswith("  ") and "] " in text else None
    )
    if found:
        if inner := _PROCESS.search(text, 0, found.start()):
            process, pid = inner["name"] or process, inner["pid"]
        source = found["source"].strip("[]")
        return Frame(text[found.end() :], process, pid, _level(found["level"]), source, found["clock"], True, remote)
    if found := _UVICORN.match(text):
        return Frame(text[found.end() :], process, pid, _level(found["level"]))
    if found := _GLOG.match(text):
        rank = f"rank{found['rank']}" if found["rank"] else None
        return Frame(
            text[found.end() :], process or rank, pid, _GLOG_LEVEL[found["letter"]], found["source"], None, False
        )
    if found := _NCCL.match(text):
        kind = "ERROR" if found["level"] in {"WARN", "ERROR"} else found["level"]
        return Frame("NCCL " + found["level"] + " " + text[found.end() :], process or found["process"], pid, kind)
    return Frame(text, process, pid, level if level in ERROR_LEVELS else None)


def _level(word: str) -> str:
    return "WARNING" if word == "WARN" else word


def _from_json(text: str) -> str | None:
    """The message inside a JSON log line (Docker's json-file driver, structured loggers), with its level put before."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    message = next((record[key] for key in _JSON_TEXT if isinstance(record.get(key), str)), None)
    if message is None:
        return None
    level = record.get("level") or record.get("levelname") or record.get("severity")
    bare = message.rstrip("\r\n")
    if isinstance(level, str) and level.upper() in ERROR_LEVELS and not _HEADER.search(bare):
        return f"{level.upper()}:     {bare}"
    return str(bare)


def seconds_between(earlier: str | None, later: str | None) -> float | None:
    """From one `MM-DD HH:MM:SS` to another; None where one is missing. A turn of the year gives a negative number."""
    if earlier is None or later is None:
        return None
    form = "%Y-%m-%d %H:%M:%S"  # 2000 was a leap year, so that 02-29 can be read
    try:
        start, end = (datetime.strptime(f"2000-{clock}", form) for clock in (earlier, later))
    except ValueError:  # a date that is none, or a log that prints no seconds
        return None
    return (end - start).total_seconds()
