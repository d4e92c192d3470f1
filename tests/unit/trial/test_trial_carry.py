"""One trial at a time: which server it meets, what it is sent, what is made of its end, and what is kept of it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult

import pytest

from repro.domain.failure import Family, Signature
from repro.domain.outcome import Failed, Passed, Unresolved
from repro.domain.stage import Stage
from repro.domain.trial import Fresh, Trial
from repro.errors import DockerUnavailable, MissingProgram, SceneMoved
from repro.machine.processes import PortHolder
from repro.probe.answer import HttpAnswer

MakeTrial = Callable[..., Trial]
EAGER = {"--enforce-eager": True}
# As vLLM's engine tells of an illegal access, in the order of its lines.
CRASH = (
    "(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1512] EngineCore encountered a fatal error.",
    "(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1512] Traceback (most recent call last):",
    '(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1512]   File "/x/vllm/v1/engine/core.py", line 9, in f',
    "(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1512]     raise error",
    "(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1512] torch.AcceleratorError: CUDA error: an illegal memory "
    "access was encountered",
)


def test_a_warm_server_is_used_again_and_a_request_variable_needs_no_other(shop: Any, trial: MakeTrial) -> None:
    first = shop.carrier.carry(trial())
    assert not shop.carrier.needs_launch(trial(1, values={"input_tokens": 60}))
    second = shop.carrier.carry(trial(1, values={"input_tokens": 60}))
    assert [first.answer.cost.launches, second.answer.cost.launches] == [1, 0]
    assert first.answer.server.id == second.answer.server.id == "s0"
    # The readiness check's own completion is a served request like any other.
    assert [first.answer.server.served_before, second.answer.server.served_before] == [1, 2]
    assert isinstance(second.answer.outcome, Passed)
    assert (second.answer.sent, second.answer.missed) == (1, 0)
    lengths = [len(body["messages"][0]["content"].split()) for body in shop.engine.servers[0].asked]
    assert lengths == [20, 60]


def test_a_warm_server_meets_a_cold_prefix_cache(shop: Any, trial: MakeTrial) -> None:
    """The salt of a trial's own keeps its prompt from being found among those of earlier trials."""
    shop.carrier.carry(trial(fresh=Fresh.REQUIRED))
    shop.carrier.carry(trial(1))
    salts = [body.get("cache_salt") for body in shop.engine.servers[0].asked]
    assert salts == [None, trial(1).id]


def test_another_launch_configuration_stops_the_warm_server_first(shop: Any, trial: MakeTrial) -> None:
    shop.carrier.carry(trial())
    assert shop.carrier.needs_launch(trial(values=EAGER))
    shop.carrier.carry(trial(values=EAGER))
    old, new = shop.engine.servers
    assert (old.stops, new.stops) == (1, 0)
    assert "--enforce-eager" in new.launch.command.argv()


def test_a_fresh_server_is_started_where_one_is_required(shop: Any, trial: MakeTrial) -> None:
    shop.carrier.carry(trial())
    assert shop.carrier.needs_launch(trial(1, Fresh.REQUIRED))
    answer = shop.carrier.carry(trial(1, Fresh.REQUIRED)).answer
    assert (answer.server.id, answer.server.served_before) == ("s1", 1)


def test_a_crash_is_named_by_the_log_and_the_next_trial_launches(shop: Any, trial: MakeTrial) -> None:
    shop.engine.chat = lambda server, _body: server.dies(*CRASH)
    carried = shop.carrier.carry(trial())
    failure = carried.answer.outcome.failure
    assert (failure.stage, failure.family) == (Stage.SERVING, Family.ILLEGAL_MEMORY_ACCESS)
    assert failure.root_line_no == 9
    assert "connection" in failure.detail, "what the answer said stands beside what the log says"
    assert (carried.answer.missed, carried.answer.sent, carried.answer.server.alive) == (1, 1, False)
    assert carried.facts["first_miss"]["family"] == "engine_dead"
    assert shop.carrier.needs_launch(trial(1))
    assert shop.logs == ["server-001.log.gz"]


@pytest.mark.parametrize(("status", "trusted"), [(500, False), (400, True)])
def test_only_a_refusal_leaves_the_server_trusted(shop: Any, trial: MakeTrial, status: int, trusted: bool) -> None:
    """A server that failed at a request may be wounded; one that turned it down (4xx) is as sound as before."""
    shop.engine.chat = lambda _server, _body: HttpAnswer(status, '{"error": {"message": "boom"}}')
    answer = shop.carrier.carry(trial()).answer
    assert answer.outcome.failure.signature == Signature(Stage.SERVING, Family.HTTP_ERROR, f"HTTP {status}")
    assert "boom" in answer.outcome.failure.detail
    assert answer.server.alive is trusted
    assert shop.carrier.needs_launch(trial(1)) is not trusted


def test_allowed_misses_pass(shop: Any, trial: MakeTrial, say: Callable[..., HttpAnswer]) -> None:
    answers = [HttpAnswer(500, "{}"), say(), say()]
    shop.engine.chat = lambda _server, _body: answers.pop(0)
    answer = shop.carrier.carry(trial(rounds=3, allowed=1)).answer
    assert isinstance(answer.outcome, Passed)
    assert (answer.missed, answer.sent) == (1, 3)


def test_a_server_that_does_not_come_up_is_stopped_and_told(shop: Any, trial: MakeTrial) -> None:
    shop.engine.dead = True
    shop.engine.printed += "\n".join(CRASH) + "\n"
    carried = shop.carrier.carry(trial())
    assert isinstance(carried.answer.outcome, Failed)
    assert carried.answer.server is None
    assert (carried.answer.cost.launches, carried.answer.sent) == (1, 0)
    assert carried.facts["early_end"] is False
    assert shop.engine.servers[0].stops == 1
    assert carried.log == "server-001.log.gz"
    assert shop.logs == [carried.log]


def test_a_launch_ends_at_the_asked_stage_without_requests(shop: Any, trial: MakeTrial, weights_log: str) -> None:
    shop.engine.printed = weights_log
    answer = shop.carrier.carry(trial(stop_after=Stage.WEIGHT_ACCESS)).answer
    assert isinstance(answer.outcome, Passed)
    assert Stage.WEIGHT_ACCESS in answer.outcome.reached
    assert answer.sent == 0
    server = shop.engine.servers[0]
    assert (server.stops, server.asked) == (1, [])
    assert shop.carrier.needs_launch(trial(1)), "a server that was stopped on its way up is not warm"


def test_counters_against_the_command_say_nothing_about_the_configuration(shop: Any, trial: MakeTrial) -> None:
    shop.engine.queries = 40.0
    outcome = shop.carrier.carry(trial()).answer.outcome
    assert isinstance(outcome, Unresolved)
    assert "prefix caching should be off" in outcome.reason
    assert "on" in outcome.reason


def test_a_failure_goes_before_a_doubt_about_the_cache(shop: Any, trial: MakeTrial) -> None:
    shop.engine.queries = 40.0
    shop.engine.chat = lambda _server, _body: HttpAnswer(500, "{}")
    assert isinstance(shop.carrier.carry(trial()).answer.outcome, Failed)


def test_a_prompt_that_cannot_be_built_is_unresolved(shop: Any, trial: MakeTrial) -> None:
    real = shop.engine.client

    class NoTokenizer:
        def __init__(self, url: str) -> None:
            self._client = real(url)

        def get(self, path: str, deadline_s: float) -> HttpAnswer:
            return self._client.get(path, deadline_s)  # type: ignore[no-any-return]

        def post(self, path: str, body: dict[str, Any], deadline_s: float) -> HttpAnswer:
            return HttpAnswer(404) if path == "/tokenize" else self._client.post(path, body, deadline_s)

    shop.engine.client = NoTokenizer
    carried = shop.carrier.carry(trial())
    assert isinstance(carried.answer.outcome, Unresolved)
    assert "/tokenize" in carried.answer.outcome.reason
    assert carried.answer.sent == 0


def test_a_moved_fact_is_named_and_nothing_is_started(shop: Any, trial: MakeTrial) -> None:
    shop.carrier.carry(trial())
    shop.facts["model.digest"] = "b"
    with pytest.raises(SceneMoved) as seen:
        shop.carrier.carry(trial(1, Fresh.REQUIRED))
    assert "model.digest: a -> b" in seen.value.message
    assert seen.value.exit_code == 125
    assert len(shop.engine.servers) == 1


def test_secrets_are_masked_in_everything_that_is_told(shop: Any, trial: MakeTrial, secret: str) -> None:
    told = CRASH[-1] + f" token={secret}"
    body = json.dumps({"error": {"message": f"bad token {secret}"}})

    def chat(server: Any, _body: dict[str, Any]) -> HttpAnswer:
        server.dies(*CRASH[:-1], told)
        return HttpAnswer(500, body)

    shop.engine.chat = chat
    carried = shop.carrier.carry(trial())
    failure = carried.answer.outcome.failure
    assert "***masked" in failure.root_line
    assert secret not in repr(carried)
    kept = gzip.decompress((shop.folder / "logs" / carried.log).read_bytes()).decode()
    assert secret not in kept
    assert kept.splitlines()[failure.root_line_no - 1].startswith("(EngineCore pid=20) ERROR")
    for file in shop.folder.rglob("*.gz"):
        assert secret.encode() not in gzip.decompress(file.read_bytes()), file


def test_the_requests_of_a_trial_are_kept_before_they_are_sent(shop: Any, trial: MakeTrial) -> None:
    seen: list[list[str]] = []

    def chat(server: Any, _body: dict[str, Any]) -> HttpAnswer:
        seen.append([p.name for p in (shop.folder / "requests").iterdir()])
        return server.dies(*CRASH)  # type: ignore[no-any-return]

    shop.engine.chat = chat
    shop.carrier.carry(trial())
    assert seen == [[f"{trial().id}.json.gz"]]


def test_closing_stops_the_warm_server_and_keeps_its_log(shop: Any, trial: MakeTrial) -> None:
    shop.carrier.carry(trial())
    assert shop.logs == ["server-001.log"]
    shop.carrier.close()
    shop.carrier.close()
    assert shop.engine.servers[0].stops == 1
    assert shop.logs == ["server-001.log.gz"]


def test_logs_are_numbered_on_from_what_is_there(shop: Any, trial: MakeTrial) -> None:
    (shop.folder / "logs" / "server-001.log.gz").write_bytes(b"")
    (shop.folder / "logs" / "server-002.log").write_text("of a repro that was killed")
    assert shop.carrier.carry(trial()).log == "server-003.log.gz"


def test_an_engine_that_cannot_start_leaves_nothing_behind(shop: Any, trial: MakeTrial) -> None:
    shop.engine.missing = True
    with pytest.raises(MissingProgram):
        shop.carrier.carry(trial())
    shop.carrier.close()
    assert shop.logs == []


def test_an_interrupt_while_a_log_is_being_kept_leaves_no_raw_log(
    shop: Any, trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.carrier.carry(trial())
    real = gzip.GzipFile.write

    def interrupted(self: gzip.GzipFile, data: bytes) -> int:
        monkeypatch.setattr(gzip.GzipFile, "write", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(gzip.GzipFile, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shop.carrier.carry(trial(1, Fresh.REQUIRED))
    shop.carrier.close()
    assert shop.logs == ["server-001.log.gz"]
    assert b"non-default args" in gzip.decompress((shop.folder / "logs" / shop.logs[0]).read_bytes())


def test_an_interrupt_while_closing_still_stops_the_server(
    shop: Any, trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.carrier.carry(trial())
    server = shop.engine.servers[0]
    real = type(server).stop
    calls: list[int] = []

    def stop(self: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return real(self)

    monkeypatch.setattr(type(server), "stop", stop)
    with pytest.raises(KeyboardInterrupt):
        shop.carrier.close()
    assert server.stops == 1
    assert shop.logs == ["server-001.log.gz"]


# As vLLM prints it when its port is taken, before anything else of its start-up.
PORT_TAKEN = (
    "(APIServer pid=9) INFO 12-01 10:00:10 [api_utils.py:286] non-default args: {'model': 'm'}\n"
    "(APIServer pid=9) Traceback (most recent call last):\n"
    '(APIServer pid=9)   File "/x/vllm/entrypoints/openai/api_server.py", line 9, in create_server_socket\n'
    "(APIServer pid=9) OSError: [Errno 98] Address already in use\n"
)


@pytest.mark.parametrize("holder", [PortHolder(8123, 77), None])
def test_a_port_that_somebody_else_took_says_nothing_about_the_command(
    shop: Any, trial: MakeTrial, monkeypatch: pytest.MonkeyPatch, holder: PortHolder | None
) -> None:
    """repro chose the port while it was free. With nobody there any more the failure stands as the log tells it."""
    shop.engine.dead = True
    shop.engine.printed = PORT_TAKEN
    monkeypatch.setattr("repro.trial.live.holder_of_port", lambda _port: holder)
    monkeypatch.setattr("repro.trial.live.urlsplit", lambda _url: SplitResult("http", "127.0.0.1:8123", "", "", ""))
    outcome = shop.carrier.carry(trial()).answer.outcome
    if holder is None:
        assert outcome.failure.family is Family.PORT_IN_USE
    else:
        assert outcome == Unresolved("pid 77 took port 8123, which had been chosen for the server")


def test_a_daemon_that_is_down_leaves_the_trial_unresolved(
    shop: Any, trial: MakeTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> object:
        raise DockerUnavailable("Docker does not answer")

    monkeypatch.setattr(shop.engine, "start", refuses)
    answer = shop.carrier.carry(trial()).answer
    assert answer.outcome == Unresolved("Docker does not answer")
    assert answer.cost.launches == 0
