from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.runner.port import Ended, StageReached, Waiting
from repro.runner.watch import Deadlines, NotReady, Ready, Watch
from repro.triage import Triage

BANNER = "(APIServer pid=10) INFO 12-01 10:00:00 [utils.py:233] non-default args: {'model': 'm'}"
ENGINE = "(EngineCore pid=20) INFO 12-01 10:00:09 [core.py:105] Initializing a V1 LLM engine (v0.32.0) with config: m"
GROUP = (
    "(EngineCore pid=20) INFO 12-01 10:00:10 [parallel_state.py:1300] world_size=1 rank=0 local_rank=0 "
    "distributed_init_method=tcp://127.0.0.1:5 backend=gloo",
    "(EngineCore pid=20) INFO 12-01 10:00:11 [parallel_state.py:1600] rank 0 in world size 1 is assigned as DP rank 0, "
    "PP rank 0, PCP rank 0, TP rank 0, EP rank N/A",
)
WEIGHTS = "(EngineCore pid=20) INFO 12-01 10:00:12 [default_loader.py:300] Loading weights took 0.02 seconds"
BAD_LENGTH = (
    "(APIServer pid=10) Traceback (most recent call last):\r",
    '(APIServer pid=10)   File "/x/vllm/config/model.py", line 1600, in get_and_verify_max_len\r',
    "(APIServer pid=10)     raise ValueError(\r",
    "(APIServer pid=10) ValueError: User-specified max_model_len (999999) is greater than the derived max_model_len "
    "(max_position_embeddings=4096.0 or model_max_length=None in model's config.json).",
)

# A server that tells its fault and lives on: the engine is dead, the front end has not noticed yet.
DEAD_ENGINE = (
    "(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1510] EngineCore failed to start.\r",
    "(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1510] Traceback (most recent call last):\r",
    '(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1510]   File "/x/vllm/v1/core/kv_cache.py", line 7, in f\r',
    "(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1510]     raise ValueError(\r",
    "(EngineCore pid=20) ERROR 12-01 10:00:14 [core.py:1510] ValueError: No available memory for the cache blocks. "
    "Try increasing `gpu_memory_utilization` when initializing the engine.",
    "(APIServer pid=10) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
)

ReadyAtMaker = Callable[[float], Any]


def watch(server: Any, recorder: Any = None, **deadlines: Any) -> Watch:
    return Watch(server, Triage(), server.clock, Deadlines(**deadlines), recorder)


def test_ready_after_all_stages(server: Any, recorder: Any, ready_at: ReadyAtMaker) -> None:
    server.prints(0.01, BANNER)
    server.prints(5, ENGINE, *GROUP)
    server.prints(9, WEIGHTS)
    end = watch(server, recorder).await_ready(ready_at(12))
    assert isinstance(end, Ready)
    assert {Stage.COMM_GROUP, Stage.WEIGHT_ACCESS, Stage.API_READY} <= set(end.reached)
    assert 12 <= end.seconds <= 13.1
    stages = [e.stage for e in recorder.events if isinstance(e, StageReached)]
    assert tuple(stages) == end.reached
    assert [e.reason for e in recorder.events if isinstance(e, Waiting)] == ["/health: refused"]
    assert recorder.events[-1] == Ended(True, "ready", end.seconds)


def test_a_stage_that_was_asked_for_ends_the_wait(server: Any, ready_at: ReadyAtMaker) -> None:
    server.prints(0.01, BANNER, ENGINE, *GROUP)
    end = watch(server).await_ready(ready_at(500), stop_after=Stage.COMM_GROUP)
    assert isinstance(end, Ready)
    assert end.stopped_after is Stage.COMM_GROUP
    assert end.seconds < 1


def test_a_stranger_that_answers_is_not_the_server(server: Any, ready_at: ReadyAtMaker) -> None:
    server.prints(1, BANNER)
    server.other = "process 7 (python -m http.server)"
    end = watch(server).await_ready(ready_at(3))
    assert isinstance(end, NotReady)
    assert (end.failure.stage, end.failure.family) == (Stage.API_READY, Family.PORT_IN_USE)
    assert "process 7" in end.failure.detail
    assert end.early_end


def test_an_exit_is_judged_by_the_whole_log(server: Any, ready_at: ReadyAtMaker, clock: Any) -> None:
    server.prints(1, BANNER)
    server.ends(8, 1)
    server.prints(8.01, *BAD_LENGTH)
    end = watch(server).await_ready(ready_at(500))
    assert isinstance(end, NotReady)
    assert not end.early_end
    assert end.failure.family is Family.CONFIG_INVALID
    assert "max_model_len (999999)" in (end.failure.root_line or "")


def test_workers_that_outlive_the_leader_are_heard_to_the_end(server: Any, ready_at: ReadyAtMaker) -> None:
    server.ends(8, 1)
    for step in range(16):
        server.prints(8 + step * 0.09, f"{BANNER} {step}")
    server.prints(9.45, *BAD_LENGTH)
    end = watch(server, grace_s=3).await_ready(ready_at(500))
    assert isinstance(end, NotReady)
    assert end.failure.family is Family.CONFIG_INVALID


def test_a_certain_cause_ends_a_launch_that_lives_on(server: Any, ready_at: ReadyAtMaker, recorder: Any) -> None:
    server.prints(1, BANNER, ENGINE, *GROUP, WEIGHTS, *DEAD_ENGINE)
    end = watch(server, recorder, grace_s=2).await_ready(ready_at(500))
    assert isinstance(end, NotReady)
    assert end.early_end
    assert end.failure.family is Family.KV_CACHE_TOO_SMALL
    assert 3 <= end.seconds < 6
    assert isinstance(recorder.events[-1], Ended)
    assert not recorder.events[-1].ready


def test_a_server_that_becomes_ready_all_the_same_is_ready(server: Any, ready_at: ReadyAtMaker) -> None:
    server.prints(1, BANNER, ENGINE, *GROUP, WEIGHTS, *DEAD_ENGINE)
    assert isinstance(watch(server, grace_s=2).await_ready(ready_at(2)), Ready)


def test_silence_without_cpu_time_is_a_hang(server: Any, ready_at: ReadyAtMaker) -> None:
    server.prints(0.01, BANNER, ENGINE, GROUP[0])
    end = watch(server, stall_s=60, total_s=3600).await_ready(ready_at(9000))
    assert isinstance(end, NotReady)
    assert (end.failure.stage, end.failure.family) == (Stage.COMM_GROUP, Family.HANG)
    assert "futex_wait_queue" in end.failure.detail
    assert "60 s" in end.reason
    assert end.early_end
    assert 60 <= end.seconds < 63


def test_silence_with_cpu_time_is_work(server: Any, ready_at: ReadyAtMaker) -> None:
    server.prints(0.01, BANNER, ENGINE)
    server.cpu_share = 0.5
    end = watch(server, stall_s=60, total_s=400).await_ready(ready_at(9000))
    assert isinstance(end, NotReady)
    assert "not ready within 400 s" in end.reason
    assert isinstance(watch(server, stall_s=60, total_s=4000).await_ready(ready_at(1000)), Ready)


def test_new_log_lines_are_signs_of_life(server: Any, ready_at: ReadyAtMaker) -> None:
    for time in range(0, 400, 40):
        server.prints(time + 0.01, f"{BANNER} {'x' * (time // 40)}")
    assert isinstance(watch(server, stall_s=60).await_ready(ready_at(400)), Ready)


def test_the_same_complaint_again_and_again_is_none(server: Any, ready_at: ReadyAtMaker) -> None:
    server.prints(0.01, BANNER, ENGINE, GROUP[0])
    for time in range(1, 400):
        server.prints(time, f"[W1201 10:01:{time} socket.cpp:755] [c10d] The client socket cannot connect, try {time}")
    end = watch(server, stall_s=60).await_ready(ready_at(400))
    assert isinstance(end, NotReady)
    assert end.failure.stage is Stage.COMM_GROUP
    assert 60 < end.seconds < 66


def test_an_exit_without_a_word_is_a_failure(server: Any, ready_at: ReadyAtMaker) -> None:
    server.ends(1, 0)
    end = watch(server).await_ready(ready_at(500))
    assert isinstance(end, NotReady)
    assert end.failure.stage is Stage.CONTAINER_INIT


@pytest.fixture
def ready_watch(server: Any, ready_at: ReadyAtMaker) -> Watch:
    server.prints(0.01, BANNER, ENGINE, *GROUP, WEIGHTS)
    server.prints(
        1,
        "(APIServer pid=10) INFO 12-01 10:00:20 [launcher.py:47] Starting vLLM server on http://127.0.0.1:1",
        "INFO:     Application startup complete.",
    )
    begun = watch(server, death_s=8)
    assert isinstance(begun.await_ready(ready_at(2)), Ready)
    return begun


def test_a_server_that_lives_on_has_no_failure(server: Any, ready_watch: Watch) -> None:
    before = server.clock.time
    assert ready_watch.after_requests(suspected=False) is None
    assert server.clock.time == before, "one look, no wait"
    assert ready_watch.still_alive()


def test_exit_code_0_after_a_request_is_a_failure(server: Any, ready_watch: Watch) -> None:
    server.ends(server.clock.time + 3, 0)
    failure = ready_watch.after_requests(suspected=True)
    assert failure is not None
    assert (failure.stage, failure.family) == (Stage.SERVING, Family.ENGINE_DEAD)
    assert not ready_watch.still_alive()
    assert ready_watch.after_requests(suspected=False) is not None


def test_a_missed_request_waits_a_bounded_time_for_a_death(server: Any, ready_watch: Watch) -> None:
    before = server.clock.time
    assert ready_watch.after_requests(suspected=True) is None
    assert 8 <= server.clock.time - before < 10
