"""The engine of the stand-in: admits requests, asks the prefix cache, plays faults, writes answers, counts.

Each HTTP thread runs its own request here; one condition variable guards all state. The clock and the waiting are the
caller's: answers are complete when `admitted` yields, and the server paces them out.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from repro.simulator import failure_log, tokens, writing
from repro.simulator.arguments import ServeArguments
from repro.simulator.condition import Facts
from repro.simulator.failure_log import Wording
from repro.simulator.faults import Fault, FaultPlan
from repro.simulator.log import Log
from repro.simulator.prefix_cache import PrefixCache
from repro.simulator.request_body import Refused, Request
from repro.simulator.startup_log import cache_tokens_of

# A request that must know its company waits until no other came for this long, but not for ever.
_QUIET_S = 0.03
_LONGEST_GATHERING_S = 0.6
_POLL_S = 0.02
_LEAKED = "<|close|>message<|sep|><|open|>tools<|sep|>"


class EngineDead(Exception):
    """The engine died, at this request or before."""


class ClientGone(Exception):
    """The client closed its connection while it waited."""


@dataclass(frozen=True)
class Answer:
    """What is sent back: pieces of one token each, and what the usage says."""

    pieces: tuple[str, ...]
    completion_tokens: int
    finish_reason: str
    cached_tokens: int = 0
    reasoning: tuple[str, ...] = ()
    tool_calls: tuple[dict[str, Any], ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass
class Counters:
    """Totals since the start, named as the metrics are."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    cache_queries: int = 0
    cache_hits: int = 0
    running: int = 0
    waiting: int = 0
    running_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0, "error": 0})


class Engine:
    """See the module. `dead` is set when the engine died, `hung` once a hang was played and signals are ignored."""

    def __init__(self, arguments: ServeArguments, plan: FaultPlan, facts: Facts, log: Log, wording: Wording) -> None:
        self._plan, self._facts, self._log, self._wording = plan, facts, log, wording
        self._most_running = int(arguments.value("max_num_seqs"))
        self.cache_tokens = cache_tokens_of(arguments)
        self.block_size = int(arguments.value("block_size"))
        caching = arguments.value("enable_prefix_caching")
        self._cache = PrefixCache(self.block_size, self.cache_tokens // self.block_size) if caching else None
        self._changed = threading.Condition()
        self._in_flight = 0
        self._arrived = 0
        self._served = 0
        self._gathering: dict[int, int] = {}
        self._ready_at = time.monotonic()
        self.counters = Counters()
        self.dead = threading.Event()
        self.hung = False
        self.lost_peer: Fault | None = None  # what the next step's collective runs into

    @contextmanager
    def admitted(self, request: Request, still_there: Callable[[], bool]) -> Iterator[Answer]:
        """Run a request; what stands inside the `with` block still counts as in flight.

        Raises EngineDead, Refused (a fault that only fails this request) or ClientGone.
        """
        number = self._arrive()
        outcome = "error"
        running = False
        try:
            company = self._company(number)
            self._start_running(request, still_there)
            running = True
            answer = self._answer(request, number, company, still_there)
            outcome = "abort"
            yield answer
            outcome = answer.finish_reason if answer.finish_reason == "length" else "stop"
        except ClientGone:
            outcome = "abort"
            raise
        finally:
            self._leave(request, running, outcome)

    def _arrive(self) -> int:
        with self._changed:
            if self.dead.is_set():
                raise EngineDead
            self._arrived += 1
            self._in_flight += 1
            for other in self._gathering:
                self._gathering[other] = max(self._gathering[other], self._in_flight)
            self._gathering[self._arrived] = self._in_flight
            self._changed.notify_all()
            return self._arrived

    def _company(self, number: int) -> int:
        """The most requests seen in flight together with this one, itself included."""
        with self._changed:
            give_up = time.monotonic() + _LONGEST_GATHERING_S
            seen = -1
            while self._plan.asks_concurrency and seen != self._arrived and time.monotonic() < give_up:
                seen = self._arrived
                self._changed.wait_for(lambda before=seen: self._arrived != before, _QUIET_S)  # type: ignore[misc]
            return self._gathering.pop(number)

    def _start_running(self, request: Request, still_there: Callable[[], bool]) -> None:
        with self._changed:
            self.counters.waiting += 1
            try:
                while not self._has_room(request):
                    self._changed.wait(_POLL_S)
                    self._check(still_there)
            finally:
                self.counters.waiting -= 1
            self.counters.running += 1
            self.counters.running_tokens += len(request.prompt)

    def _has_room(self, request: Request) -> bool:
        fits = self.counters.running_tokens + len(request.prompt) <= self.cache_tokens
        return self.counters.running == 0 or (self.counters.running < self._most_running and fits)

    def _leave(self, request: Request, running: bool, outcome: str) -> None:
        with self._changed:
            self._in_flight -= 1
            if running:
                self.counters.running -= 1
                self.counters.running_tokens -= len(request.prompt)
            self.counters.finished[outcome] += 1
            self._served += 1
            self._changed.notify_all()

    def _answer(self, request: Request, number: int, company: int, still_there: Callable[[], bool]) -> Answer:
        cached = self._look_up(request)
        fault = self.lost_peer or self._plan.at_request(number, self._facts_of(request, cached, company))
        if fault is not None:
            self._play(fault, request, still_there)
        if self.dead.is_set():
            raise EngineDead
        answer = replace(_write(request, number, fault.do if fault else ""), cached_tokens=cached)
        with self._changed:
            self.counters.generation_tokens += answer.completion_tokens
        return answer

    def _look_up(self, request: Request) -> int:
        with self._changed:
            self.counters.prompt_tokens += len(request.prompt)
            if self._cache is None:
                return 0
            cached = self._cache.admit(request.prompt, request.salt)
            self.counters.cache_queries += len(request.prompt)
            self.counters.cache_hits += cached
            return cached

    def _facts_of(self, request: Request, cached: int, company: int) -> Facts:
        names = {
            **self._facts.names,
            "input_tokens": len(request.prompt),
            "max_tokens": request.asked_max_tokens,
            "output_tokens": request.max_tokens,
            "cached_tokens": cached,
            "concurrency": company,
            "served_requests": self._served,
            "soak_seconds": time.monotonic() - self._ready_at,
            "stream": request.stream,
            "has_tools": request.has_tools,
            "tool_calls": request.has_tools,
            "reasoning_effort": request.reasoning_effort,
            "temperature": request.temperature,
            "text": request.text,
        }
        return Facts(names, self._facts.flag, self._facts.env)

    def _play(self, fault: Fault, request: Request, still_there: Callable[[], bool]) -> None:
        if fault.do == "hang":
            self.hung = True
        self.wait(float("inf") if fault.do == "hang" else fault.delay_s, still_there)
        if fault.do in ("crash", "kill"):
            self._die(fault, request)
        elif fault.do in ("error", "broken_tool_call"):
            failure_log.print_request_error(self._log, fault, self._wording)
        if fault.do == "error":
            root = failure_log.root_of(fault, self._wording, input_tokens=len(request.prompt))
            server_side = fault.status >= 500
            raise Refused(
                fault.status,
                failure_log.without_name(root),
                "InternalServerError" if server_side else "BadRequestError",
            )

    def _die(self, fault: Fault, request: Request) -> None:
        with self._changed:
            if not self.dead.is_set():
                failure_log.print_engine_death(self._log, fault, self._wording, request)
                self.dead.set()
        raise EngineDead

    def wait(self, seconds: float, still_there: Callable[[], bool]) -> None:
        """Let time pass inside a request; ends early by EngineDead or ClientGone."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.dead.wait(min(left, _POLL_S))
            self._check(still_there)

    def _check(self, still_there: Callable[[], bool]) -> None:
        if self.dead.is_set():
            raise EngineDead
        if not still_there():
            raise ClientGone


def _write(request: Request, number: int, deed: str) -> Answer:
    limit = request.max_tokens
    if deed == "empty":
        return Answer((), 1, "stop")
    if deed == "endless":
        return Answer(("!", *[" !"] * (limit - 1)), limit, "length")
    if deed == "broken_tool_call":
        raw = tokens.encode(writing.raw_tool_call(request.tool or {}))
        return _limited([tokens.decode([n]) for n in raw], request)
    if request.tool is not None:
        return _tool_call(request, request.tool)
    if request.schema is not None:
        return _limited(writing.json_pieces(request.schema), request)
    thoughts = writing.thought_length(request)
    wanted = (
        limit if request.ignore_eos else max(writing.natural_length(request, number) + thoughts, request.min_tokens)
    )
    pieces = writing.words(request, number, min(wanted, limit))
    if deed == "leaked_markers":
        pieces = [*pieces[: max(limit - 6, 1)], _LEAKED]
    if thoughts and len(pieces) > thoughts:
        pieces[thoughts] = pieces[thoughts].lstrip()
    answer = _stopped(pieces[thoughts:], request, "length" if wanted >= limit else "stop")
    return replace(answer, reasoning=tuple(pieces[:thoughts]), completion_tokens=answer.completion_tokens + thoughts)


def _limited(pieces: list[str], request: Request) -> Answer:
    reason = "stop" if len(pieces) < request.max_tokens else "length"
    return _stopped(pieces[: request.max_tokens], request, reason)


def _stopped(pieces: list[str], request: Request, reason: str) -> Answer:
    """Cut the text before the first stop string."""
    text = "".join(pieces) if request.stop else ""
    ends = [at for stop in request.stop if stop and (at := text.find(stop)) >= 0]
    if not ends:
        return Answer(tuple(pieces), len(pieces), reason)
    kept = [tokens.decode([number]) for number in tokens.encode(text[: min(ends)])]
    return Answer(tuple(kept), len(kept) + 1, "stop")


def _tool_call(request: Request, tool: dict[str, Any]) -> Answer:
    arguments = json.dumps(writing.example(tool.get("parameters") or {"type": "object"}))
    count = len(tokens.encode(arguments)) + len(tokens.encode(tool["name"])) + 8
    if count > request.max_tokens:
        # As the real server: a call that does not fit is no call at all, and no error either.
        return Answer((), request.max_tokens, "length")
    call = {
        "id": f"chatcmpl-tool-{os.urandom(8).hex()}",
        "type": "function",
        "function": {"name": tool["name"], "arguments": arguments},
    }
    return Answer((), count, "stop" if request.tool_named else "tool_calls", tool_calls=(call,))
