"""Carries one trial out: is the scene still the same, a warm or a fresh server, the request set, what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import assert_never

from repro.domain.failure import Failure, Family
from repro.domain.fingerprint import Fingerprint, moved
from repro.domain.launch import Launch
from repro.domain.outcome import Failed, Outcome, Passed, Unresolved
from repro.domain.request import RequestSet, RequestShape
from repro.domain.scene import PREFIX_CACHING_FLAG, Scene
from repro.domain.trial import Answer, Cost, Fresh, ServerFacts, Trial
from repro.errors import DockerUnavailable, SceneMoved
from repro.machine.clock import Clock
from repro.probe.metrics import fetch_metrics, prefix_caching_in_force
from repro.probe.prompt import CannotBuild, build
from repro.probe.send import Exchange, send
from repro.probe.tokens import HttpTokenizer
from repro.redact.redactor import Redactor
from repro.redact.shapes import MASK
from repro.runner.watch import NotReady
from repro.trial.live import Bench, Live

# Misses after which an engine's death may still be on its way into the log; a refused or a bad answer tells all itself.
_MAY_BE_DYING = frozenset({Family.ENGINE_DEAD, Family.TIMEOUT, Family.HTTP_ERROR})


@dataclass(frozen=True)
class Carried:
    """An answer with what the journal keeps beside it: the server's log, and facts about the requests (JSON)."""

    answer: Answer
    log: str | None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Served:
    """What the requests of one trial came to; `sound`: the server may be trusted with another trial."""

    outcome: Outcome
    missed: int
    sent: int
    facts: dict[str, Any]
    sound: bool = True


class Carrier:
    """Turns trials of one scene into answers on one bench.

    `pinned` takes the facts that must not move; `expected` are those of the session's start. `keep_requests` is given
    the requests of a trial before they are sent.
    """

    def __init__(
        self,
        scene: Scene,
        bench: Bench,
        clock: Clock,
        redactor: Redactor,
        pinned: Callable[[], Fingerprint],
        expected: Fingerprint,
        keep_requests: Callable[[str, RequestSet], None],
    ) -> None:
        self._scene = scene
        self._bench = bench
        self._clock = clock
        self._redactor = redactor
        self._pinned = pinned
        self._expected = expected
        self._keep_requests = keep_requests

    def needs_launch(self, trial: Trial) -> bool:
        """Whether carrying this trial out would start a server now."""
        return trial.fresh is Fresh.REQUIRED or not self._bench.is_warm(self._scene.launch(trial.configuration))

    def carry(self, trial: Trial) -> Carried:
        """One try. Raises SceneMoved when a pinned fact is no longer what it was, and what the engine raises."""
        self._same_scene()
        begun = self._clock.monotonic()
        try:
            return self._carried(trial, begun)
        except DockerUnavailable as error:
            # A daemon's absence says nothing about the configuration. What it still runs is stopped by the next start.
            cost = Cost(seconds=self._clock.monotonic() - begun)
            return Carried(Answer(trial.id, self._masked(Unresolved(error.message)), cost=cost), self._bench.log_name)

    def _carried(self, trial: Trial, begun: float) -> Carried:
        launch = self._scene.launch(trial.configuration)
        live = None if trial.fresh is Fresh.REQUIRED else self._bench.warm(launch)
        launches = 0 if live is not None else 1
        if live is None:
            started = self._bench.start(launch, trial.stop_after)
            if isinstance(started, NotReady):
                return self._not_ready(trial, started, begun)
            live = started
        before = live.served_requests
        shape = self._scene.shape(trial.configuration).repeated(trial.rounds * self._repeats(launch))
        served = (
            _Served(Passed(live.reached), 0, 0, {})
            if trial.stop_after in live.reached
            else self._serve(trial, live, shape)
        )
        alive = served.sound and live.watch.still_alive()
        facts = ServerFacts(live.server.id, launch.digest, before, alive)
        cost = Cost(launches, self._clock.monotonic() - begun)
        if not facts.alive or trial.stop_after is not None:
            self._bench.stop()
        outcome = self._masked(served.outcome)
        answer = Answer(trial.id, outcome, served.missed, served.sent, cost, facts)
        return Carried(answer, self._bench.log_name, self._redactor.json(served.facts))

    def close(self) -> None:
        """Stops the server that is still up; Ctrl-C in just this moment does not keep it from being stopped."""
        try:
            self._bench.stop()
        except KeyboardInterrupt:
            self._bench.stop()
            raise

    def _repeats(self, launch: Launch) -> int:
        """With prefix caching on the same bytes are sent twice, cold and then from the cache: production meets both."""
        return 2 if launch.command.flag(PREFIX_CACHING_FLAG) is True else 1

    def _same_scene(self) -> None:
        differences = moved(self._expected, self._pinned())
        if differences:
            said = "; ".join(map(str, differences))
            raise SceneMoved(
                f"the scene has moved since the session began: {said}",
                "what passed before proves nothing on this scene: put it back, or begin a new search",
            )

    def _not_ready(self, trial: Trial, end: NotReady, begun: float) -> Carried:
        cost = Cost(1, self._clock.monotonic() - begun)
        outcome: Outcome = Failed(end.failure)
        holder = self._bench.foreign_holder
        if end.failure.family is Family.PORT_IN_USE and holder is not None:
            # The port was free when it was chosen: another program was quicker, which says nothing about the command.
            who = f"pid {holder.pid}" if holder.pid is not None else "another program"
            outcome = Unresolved(f"{who} took port {holder.port}, which had been chosen for the server")
        answer = Answer(trial.id, self._masked(outcome), cost=cost)
        return Carried(answer, self._bench.log_name, {"end": end.reason, "early_end": end.early_end})

    def _serve(self, trial: Trial, live: Live, shape: RequestShape) -> _Served:
        requests = self._requests(trial, live, shape)
        if isinstance(requests, CannotBuild):
            return _Served(Unresolved(requests.reason, again=False), 0, 0, {})
        self._keep_requests(trial.id, requests)
        exchanges = send(requests, live.client)
        live.served_requests += len(exchanges)
        missed = [e for e in exchanges if e.missed is not None]
        unanswered = len(requests.requests) - len(exchanges)
        facts = _request_facts(exchanges)
        outcome: Outcome = Passed(live.reached)
        failure = self._failure(live, missed, bool(unanswered) or len(missed) > trial.allowed)
        if failure is not None:
            outcome = Failed(failure)
        elif (doubt := self._cache_doubt(trial, live)) is not None:
            outcome = Unresolved(doubt, again=False)
        # A server that has failed at a request may be wounded, and what it says next is no news of the configuration.
        sound = all(e.missed is not None and e.missed.refused for e in missed) and not unanswered
        return _Served(outcome, len(missed) + unanswered, len(requests.requests), facts, sound)

    def _requests(self, trial: Trial, live: Live, shape: RequestShape) -> RequestSet | CannotBuild:
        if live.served is None:
            return CannotBuild("the server told no model name")
        # A warm server has seen prompts that begin alike; a salt of the trial's own lets it meet them cold.
        warm = trial.fresh is not Fresh.REQUIRED and not shape.shared_prefix
        salt = trial.id if warm and live.served_requests > 0 else None
        return build(shape, HttpTokenizer(live.client), live.served.model, salt)

    def _failure(self, live: Live, missed: list[Exchange], suspected: bool) -> Failure | None:
        """What the log or the server's end tells goes before what the answer says."""
        misses = [e.missed for e in missed if e.missed is not None]
        dying = any(m.family in _MAY_BE_DYING and not m.refused for m in misses)
        failure = live.watch.after_requests(suspected and dying)
        if failure is None and suspected and missed and missed[0].missed is not None:
            failure = missed[0].missed.failure(live.reached)
        if failure is None or not missed or missed[0].missed is None:
            return failure
        said = missed[0].missed.detail
        return failure if said in failure.detail else replace(failure, detail=f"{failure.detail}; {said}".strip("; "))

    def _cache_doubt(self, trial: Trial, live: Live) -> str | None:
        """Why prefix caching is not in force as the configuration says, by the server's own counters; None if it is."""
        asked = self._scene.launch(trial.configuration).command.flag(PREFIX_CACHING_FLAG)
        metrics = fetch_metrics(live.client)
        seen = prefix_caching_in_force(metrics) if metrics is not None else None
        if not isinstance(asked, bool) or seen is None or seen == asked:
            return None
        words = {True: "on", False: "off"}
        return f"prefix caching should be {words[asked]}, and the server's counters say that it is {words[seen]}"

    def _masked(self, outcome: Outcome) -> Outcome:
        match outcome:
            case Passed():
                return outcome
            case Unresolved(reason, again):
                return Unresolved(self._redactor.text(reason), again)
            case Failed(failure):
                root = None if failure.root_line is None else self._redactor.text(failure.root_line)
                # A mask is numbered by first sight, which a resume changes; error types must stay comparable.
                template = MASK.sub("***", self._redactor.text(failure.root_template))
                detail = self._redactor.text(failure.detail)
                return Failed(replace(failure, root_line=root, root_template=template, detail=detail))
            case _:
                assert_never(outcome)


def _request_facts(exchanges: tuple[Exchange, ...]) -> dict[str, Any]:
    first = next((e.missed for e in exchanges if e.missed is not None), None)
    prompts = [e.prompt_tokens for e in exchanges if e.prompt_tokens is not None]
    outputs = [e.completion_tokens for e in exchanges if e.completion_tokens is not None]
    return {
        "prompt_tokens": max(prompts, default=None),
        "completion_tokens": max(outputs, default=None),
        "first_miss": None if first is None else {"family": first.family.value, "detail": first.detail},
    }
