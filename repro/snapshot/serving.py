"""What the server was doing before it failed: load and cache over time, how much it had served, the longest prompts.

From vLLM's statistics lines (one every ten seconds), its access log and its lines about requests; and the same series
from a Prometheus server where one is named, since a log may have been rotated away.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from repro.domain.fingerprint import Fact
from repro.machine.clock import Clock, SystemClock
from repro.snapshot.collector import Context, attempt
from repro.snapshot.log import NO_LOG
from repro.snapshot.log_source import LogSource, numbered
from repro.snapshot.prometheus import read_series

MOST_POINTS = 720  # two hours of ten-second lines; of a longer log the last ones
LONGEST_PROMPTS = 5
_PROMPTS_REMEMBERED = 2000  # requests before death among which the longest are looked for
_LONGEST_LINE = 16 << 20  # bytes; a million token ids take 7 MB
_SHARE_OF_TIME = 0.9

_STATISTICS = re.compile(rb"Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s")
_TIME = re.compile(rb"(?:INFO|DEBUG) (?P<time>\d\d-\d\d \d\d:\d\d:\d\d)")
_ENGINE = re.compile(rb"Engine (\d+):")
_NUMBERS: Mapping[str, re.Pattern[bytes]] = {
    "prompt_throughput": re.compile(rb"Avg prompt throughput: ([\d.]+)"),
    "generation_throughput": re.compile(rb"Avg generation throughput: ([\d.]+)"),
    "running": re.compile(rb"Running: (\d+)"),
    "waiting": re.compile(rb"(?:Waiting|Pending): (\d+)"),
    "preemptions": re.compile(rb"Preemptions: (\d+)"),
    "kv_usage": re.compile(rb"(?:GPU|CPU|TPU|XPU)? ?KV cache usage: ([\d.]+)%"),
    "prefix_hit_rate": re.compile(rb"Prefix cache hit rate: (?:GPU: )?([\d.]+)%"),
}
_PERCENT = ("kv_usage", "prefix_hit_rate")
_ACCESS = re.compile(rb'"(?:POST|GET) (?P<path>/\S+) HTTP/[\d.]+" (?P<status>\d{3})')
# With debug logging a line of details comes first, which alone has the token ids in newer versions.
_RECEIVED = re.compile(rb"(?:(?P<received>Received request)|Request) (?P<id>[^:\s]+)(?: details)?: ")
_TOKEN_IDS = re.compile(rb"prompt_token_ids: \[(?P<ids>[^\]]*)\]?")
_DUMPED = re.compile(rb"req_id=(?P<id>[^,)]+),\s*prompt_token_ids_len=(?P<tokens>\d+)")
_TELLING = (b"Avg prompt throughput", b"HTTP/", b"Received request", b"prompt_token_ids")
_PREFILL_PATHS = ("/v1/", "/generate", "/inference/")


class ServingCollector:
    """One pass over the log; numbers that no line of this version prints are absent from the points."""

    name = "serving"
    deadline = 120.0
    fields = ("series", "requests", "longest_prompts", "unfinished", "prometheus")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`series`: [{time, engine, running, waiting, kv_usage, prefix_hit_rate, …}], shares between 0 and 1, time as
        the log writes it. `requests`: {answered: {status: count}, received, served}. `longest_prompts`: [{id, tokens,
        line_no}]. `unfinished`: what the engine was working on when it died. `prometheus` by metric.
        """
        facts = dict.fromkeys(self.fields, Fact.unavailable(context.log_hint or NO_LOG))
        if context.log is not None:
            facts |= self._of_log(context.log)
        facts["prometheus"] = _prometheus(context, self._clock)
        return facts

    def _of_log(self, log: LogSource) -> Mapping[str, Fact]:
        until = self._clock.monotonic() + self.deadline * _SHARE_OF_TIME
        reading = _Reading()
        how = ""
        for number, line in _telling_lines(log):
            reading.line(number, line)
            if self._clock.monotonic() >= until:
                how = f"up to line {number}: the time for reading was over"
                break
        return reading.facts(how)


@dataclass
class _Reading:
    """What one pass gathers, in constant memory."""

    points: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))
    statuses: Counter[str] = field(default_factory=Counter)
    received: int = 0
    prompts: deque[tuple[int, str, int]] = field(default_factory=lambda: deque(maxlen=_PROMPTS_REMEMBERED))
    unfinished: dict[str, int] = field(default_factory=dict)

    def line(self, number: int, line: bytes) -> None:
        if _STATISTICS.search(line):
            self.points.append(_point(line))
        elif access := _ACCESS.search(line):
            if access["path"].decode("ascii", "replace").startswith(_PREFILL_PATHS):
                self.statuses[access["status"].decode("ascii")] += 1
        elif b"prompt_token_ids_len" not in line and (received := _RECEIVED.search(line)):
            self.received += received["received"] is not None
            ids = _TOKEN_IDS.search(line)
            if ids and ids["ids"].strip():
                self.prompts.append((ids["ids"].count(b",") + 1, _text(received["id"]), number))
        else:
            for dumped in _DUMPED.finditer(line):
                self.unfinished[_text(dumped["id"])] = int(dumped["tokens"])
                self.prompts.append((int(dumped["tokens"]), _text(dumped["id"]), number))

    def facts(self, how: str) -> Mapping[str, Fact]:
        longest = heapq.nlargest(LONGEST_PROMPTS, dict.fromkeys(self.prompts))
        no_prompts = (
            "the log tells no prompt's length: vLLM prints it with --enable-log-requests, or when an engine dies"
        )
        requests = {
            "answered": dict(sorted(self.statuses.items())),
            "served": sum(count for status, count in self.statuses.items() if status.startswith("2")),
            "received": self.received or None,
        }
        return {
            "series": Fact.measured(list(self.points), how)
            if self.points
            else Fact.unavailable("no statistics line: the server was idle, ended early, or runs --disable-log-stats"),
            "requests": Fact.measured(requests, how)
            if self.statuses or self.received
            else Fact.unavailable("no line about a request: none came, or the access log is off"),
            "longest_prompts": Fact.measured(
                [{"id": id, "tokens": tokens, "line_no": number} for tokens, id, number in longest], how
            )
            if longest
            else Fact.unavailable(no_prompts),
            "unfinished": Fact.measured(
                [{"id": id, "tokens": tokens} for id, tokens in list(self.unfinished.items())[:MOST_POINTS]], how
            )
            if self.unfinished
            else Fact.unavailable("no engine has dumped its input"),
        }


def _telling_lines(log: LogSource) -> Iterator[tuple[int, bytes]]:
    for number, line in numbered(log.chunks(), _LONGEST_LINE):
        if any(word in line for word in _TELLING):
            yield number, line


def _point(line: bytes) -> dict[str, Any]:
    time, engine = _TIME.search(line), _ENGINE.search(line)
    point: dict[str, Any] = {"time": _text(time["time"]) if time else None, "engine": int(engine[1]) if engine else 0}
    for name, pattern in _NUMBERS.items():
        if match := pattern.search(line):
            value = float(match[1])
            point[name] = round(value / 100, 4) if name in _PERCENT else value
    return point


def _prometheus(context: Context, clock: Clock) -> Fact:
    series, fetch = context.series, context.fetch
    if series is None or fetch is None:
        return Fact.unavailable("no Prometheus server was named (--metrics)")
    redactor = context.redactor
    fact = attempt(lambda: read_series(fetch, series, clock.now()), redactor.url(series.url))
    return fact if fact.known else Fact.unavailable(redactor.text(fact.reason))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
