"""Sends a request set: waves of `at_once` requests that leave together, in order, each answer judged and summed up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Barrier, Thread

from repro.domain.failure import Family
from repro.domain.request import Expectation, Request, RequestSet
from repro.probe.answer import Client, NetworkFault
from repro.probe.judge import Miss, judge
from repro.probe.reading import read


@dataclass(frozen=True)
class Exchange:
    """What came of one request of a set; `index` is its place there, from 0. Token counts are the server's own."""

    index: int
    status: int | None
    seconds: float
    first_byte_s: float | None = None
    fault: NetworkFault | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    content_chars: int = 0
    reasoning_chars: int = 0
    tool_calls: int = 0
    missed: Miss | None = None
    excerpt: str = ""


def send(
    request_set: RequestSet, client: Client, seen: Callable[[Exchange], None] = lambda _exchange: None
) -> tuple[Exchange, ...]:
    """Send all and wait for all. Ends early, with fewer exchanges, after a wave in which the engine died.

    `seen` is told each exchange in order, when its wave is through.
    """
    exchanges: list[Exchange] = []
    width = max(1, request_set.at_once)
    for start in range(0, len(request_set.requests), width):
        wave = _send_wave(request_set.requests[start : start + width], start, request_set.expectation, client)
        exchanges += wave
        for exchange in wave:
            seen(exchange)
        if any(e.missed is not None and e.missed.family is Family.ENGINE_DEAD for e in wave):
            break
    return tuple(exchanges)


def _send_wave(wave: tuple[Request, ...], first: int, expectation: Expectation, client: Client) -> tuple[Exchange, ...]:
    if len(wave) == 1:
        return (_exchange(first, wave[0], expectation, client),)
    # All threads meet at the barrier first, so that none has been served before the last has left.
    gate = Barrier(len(wave))
    exchanges: list[Exchange] = []
    errors: list[BaseException] = []

    def one(place: int) -> None:
        try:
            gate.wait()
            exchanges.append(_exchange(first + place, wave[place], expectation, client))
        except BaseException as error:  # raised again by whoever waits for this thread
            errors.append(error)

    # Daemons and no pool, which would wait: Ctrl-C must not last as long as a request that hangs.
    threads = [Thread(target=one, args=(place,), daemon=True) for place in range(len(wave))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return tuple(sorted(exchanges, key=lambda exchange: exchange.index))


def _exchange(index: int, request: Request, expectation: Expectation, client: Client) -> Exchange:
    answer = client.post(request.path, request.body, expectation.deadline_s)
    said = read(answer)
    missed = judge(expectation, answer, said)
    return Exchange(
        index=index,
        status=answer.status,
        seconds=answer.seconds,
        first_byte_s=answer.first_byte_s,
        fault=answer.fault,
        prompt_tokens=said.prompt_tokens,
        completion_tokens=said.completion_tokens,
        cached_tokens=said.cached_tokens,
        finish_reason=said.finish_reason,
        content_chars=len(said.content),
        reasoning_chars=len(said.reasoning),
        tool_calls=len(said.tool_calls),
        missed=missed,
        excerpt=answer.excerpt() if missed is not None else "",
    )
