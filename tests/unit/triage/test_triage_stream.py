"""The triage as its users meet it: live, with what was seen from outside, and with any rubbish that calls itself a log."""

# ruff: noqa: E501 (log lines stand here as programs print them)
from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.triage import Diagnosis, ExitEvidence, Triage, shipped_table, triage_file, triage_text

BANNER = "(APIServer pid=1) INFO 12-01 13:35:46 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0\n"
CONFIG = "(APIServer pid=1) INFO 12-01 13:35:50 [model.py:733] Resolved architecture: Qwen3ForCausalLM\n"
ENGINE = "(EngineCore pid=7) INFO 12-01 13:35:56 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/m'\n"
GROUP = "(Worker pid=9) INFO 12-01 13:35:57 [parallel_state.py:1906] world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://h:1 backend=nccl\n"
GROUPED = "(Worker pid=9) INFO 12-01 13:35:58 [parallel_state.py:2350] rank 0 in world size 2 is assigned as DP rank 0, PP rank 0\n"
WEIGHTS = "(Worker_TP0 pid=9) INFO 12-01 13:35:59 [gpu_model_runner.py:5040] Starting to load model /m...\n"
LOADED = "(Worker_TP0 pid=9) INFO 12-01 13:36:59 [default_loader.py:501] Loading weights took 60.01 seconds\n"
ENGINE_UP = "(EngineCore pid=7) INFO 12-01 13:37:59 [core.py:402] init engine (profile, create kv cache, warmup model) took 60.35 s\n"
READY = "INFO:     Application startup complete.\n"
ANSWERED = 'INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK\n'
STEPS = (BANNER, CONFIG, ENGINE, GROUP, GROUPED, WEIGHTS, LOADED, ENGINE_UP, READY, ANSWERED)
KILLED = ExitEvidence(137, 9, oom_killed=True)
VANISHED = ExitEvidence(1)
OURS = ExitEvidence(0, stopped_by_us=True)


def after(count: int, exit_: ExitEvidence | None = None) -> Diagnosis:
    return triage_text("".join(STEPS[:count]), exit_)


@pytest.mark.parametrize(
    ("count", "waiting", "proven"),
    [
        (1, "engine_init", ["container_init"]),
        (2, "engine_init", ["container_init"]),
        (3, "device_recognition", ["container_init"]),
        (4, "comm_group", ["container_init"]),
        (6, "weight_access", ["container_init", "device_recognition", "comm_group"]),
        (7, "engine_init", ["container_init", "device_recognition", "comm_group", "weight_access"]),
        (8, "api_ready", ["container_init", "device_recognition", "comm_group", "weight_access", "engine_init"]),
    ],
)
def test_a_start_without_a_word_hangs_in_the_work_of_its_last_line(count: int, waiting: str, proven: list[str]) -> None:
    answer = after(count, ExitEvidence())
    assert (answer.stage.value, answer.family, answer.root_line_no) == (waiting, Family.HANG, count)
    assert [item.stage.value for item in answer.reached] == proven
    assert not answer.certain
    assert answer.vllm_version == "0.32.0"


@pytest.mark.parametrize("count", range(9))
def test_an_oom_kill_is_host_memory_wherever_it_strikes(count: int) -> None:
    answer = after(count, KILLED)
    expected = "container_init" if count == 0 else "serving" if count == 9 else "engine_init"
    assert (answer.stage.value, answer.family) == (expected, Family.OOM_HOST)


def test_exit_code_zero_after_ready_is_a_failure_unless_somebody_stopped_it() -> None:
    assert after(10).stage is Stage.NONE
    assert after(10, ExitEvidence()).stage is Stage.NONE
    assert after(10, OURS).stage is Stage.NONE
    died = after(10, ExitEvidence(0))
    assert (died.stage, died.family) == (Stage.SERVING, Family.ENGINE_DEAD)
    assert "exit code 0" in died.note


def test_a_stop_by_signal_is_no_failure_even_by_exit_code() -> None:
    stop = "(APIServer pid=1) INFO 12-01 13:39:00 [launcher.py:254] [shutdown] API server: shutdown triggered\n"
    late = "(APIServer pid=1) ERROR 12-01 13:39:01 [async_llm.py:906] AsyncLLM output_handler failed.\n"
    assert triage_text("".join(STEPS) + stop + late, ExitEvidence(0)).stage is Stage.NONE


def test_a_start_that_ends_without_a_word_names_where_to_look() -> None:
    answer = after(6, VANISHED)
    assert (answer.stage, answer.family) == (Stage.ENGINE_INIT, Family.ENGINE_DEAD)
    assert "dmesg" in answer.note


@pytest.mark.parametrize(
    ("code", "family"), [(127, Family.ENTRYPOINT), (126, Family.ENTRYPOINT), (1, Family.ENGINE_DEAD)]
)
def test_a_container_that_says_nothing(code: int, family: Family) -> None:
    answer = triage_text("", ExitEvidence(code))
    assert (answer.stage, answer.family, answer.root_line) == (Stage.CONTAINER_INIT, family, None)


def test_live_the_answer_is_certain_as_soon_as_the_cause_is_printed() -> None:
    live = Triage()
    live.feed("".join(STEPS[:4]))
    head = "(Worker pid=9) ERROR 12-01 13:36:00 [multiproc_executor.py:953] "
    live.feed(f"{head}WorkerProc failed to start.\n{head}Traceback (most recent call last):\n")
    assert not live.diagnose(ExitEvidence()).certain
    live.feed(f"{head}torch.distributed.DistStoreError: Timed out")
    assert not live.diagnose(ExitEvidence()).certain
    live.feed(" after 11 seconds waiting for clients. 1/2 clients joined.\n")
    answer = live.diagnose(ExitEvidence())
    assert answer.certain
    assert (answer.stage, answer.family, answer.root_line_no) == (Stage.COMM_GROUP, Family.RENDEZVOUS_TIMEOUT, 7)
    assert [item.stage for item in live.reached] == [Stage.CONTAINER_INIT]
    assert answer.expected_next is Stage.DEVICE_RECOGNITION


@pytest.mark.parametrize(
    "line",
    [
        "(Worker pid=9) ERROR 12-01 13:36:00 [pynccl_wrapper.py:196] Failed to load NCCL library from libnccl.so.2.\n",
        "(EngineCore pid=7) ERROR 12-01 13:36:00 [x.py:1] something nobody has seen before\n",
        "(EngineCore pid=7) ERROR 12-01 13:36:00 [x.py:1] ImportError: cannot import name 'nice_to_have'\n",
    ],
)
def test_an_error_line_that_ended_nothing_does_not_end_a_launch(line: str) -> None:
    assert not triage_text("".join(STEPS[:3]) + line, ExitEvidence()).certain


def test_a_refused_request_is_no_failure_and_a_broken_one_is() -> None:
    trouble = (
        "(APIServer pid=1) ERROR 12-01 13:38:01 [serving_chat.py:200] Error in preprocessing prompt inputs\n"
        "(APIServer pid=1) ERROR 12-01 13:38:01 [serving_chat.py:200] Traceback (most recent call last):\n"
        '(APIServer pid=1) ERROR 12-01 13:38:01 [serving_chat.py:200]   File "/x/vllm/entrypoints/openai/serving_chat.py", line 1, in f\n'
        "(APIServer pid=1) ERROR 12-01 13:38:01 [serving_chat.py:200] ValueError: 'strange' is not a role of this template\n"
    )
    refused = '(APIServer pid=1) INFO:     127.0.0.1:5 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n'
    broken = refused.replace("400 Bad Request", "500 Internal Server Error")
    assert triage_text("".join(STEPS) + trouble + refused).stage is Stage.NONE
    assert triage_text("".join(STEPS) + trouble + broken).stage is Stage.SERVING


def test_a_restart_that_gets_ready_is_healthy_and_one_that_fails_again_keeps_the_first_cause() -> None:
    fault = (
        "(EngineCore pid=7) ERROR 12-01 13:36:00 [core.py:1510] ValueError: No available memory for the cache blocks.\n"
    )
    healthy = triage_text(BANNER + CONFIG + fault + "".join(STEPS))
    assert healthy.stage is Stage.NONE
    assert "line 3" in healthy.note
    assert triage_text((BANNER + CONFIG + fault) * 3).root_line_no == 3


def test_a_line_that_did_not_keep_the_server_from_getting_ready_is_no_cause() -> None:
    scare = "(EngineCore pid=7) ERROR 12-01 13:36:00 [x.py:1] ImportError: cannot import name 'nice_to_have'\n"
    assert triage_text("".join((BANNER, scare, *STEPS[1:]))).stage is Stage.NONE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n\n",
        "\x00\x01\x02\xff" * 100,
        '127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326\n',
        "2025/01/01 00:00:00 [error] 7#7: *1 connect() failed (111: Connection refused) while connecting to upstream\n",
        'Traceback (most recent call last):\n  File "/srv/shop/app.py", line 3, in <module>\n    boom()\nValueError: nope\n',
        "INFO:     Started server process [7]\nINFO:     Application startup complete.\nINFO:     Shutting down\n",
        "make: *** [Makefile:3: all] Error 2\n",
        "E0508 12:00:00.000 1 shop.cc:1] out of stock\n",
    ],
)
def test_other_programs_logs_are_said_to_be_so(text: str) -> None:
    answer = triage_text(text)
    assert not answer.is_vllm_log
    assert (answer.stage, answer.family) == (Stage.NONE, None)
    assert answer.note
    assert answer.failure() is None


def test_a_failure_carries_the_evidence_and_json_holds_every_key(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(STEPS[:2]) + "vllm: error: unrecognized arguments: --no-such-flag\n", encoding="utf-8")
    answer = triage_file(log)
    failure = answer.failure()
    assert failure is not None
    assert str(failure.signature) == "engine_init/arg_error"
    assert failure.root_line_no == 3
    document = json.loads(json.dumps(answer.as_json()))
    keys = {"stage", "family", "root_line_no", "root_line", "consequences", "reached", "vllm_version", "confidence"}
    assert keys <= set(document)
    assert document["reached"][0] == {"stage": "container_init", "line_no": 1, "line": BANNER.rstrip("\n")}


_WORDS = [row.example for rows in (shipped_table().markers, shipped_table().patterns) for row in rows]
_PREFIXES = [
    "",
    "(EngineCore pid=7) ERROR 12-01 13:36:00 [core.py:9] ",
    "(Worker pid=9) ",
    "INFO:     ",
    "\r",
    "  ",
    "vllm-1 | ",
]


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000))
def test_random_bytes_never_crash(raw: bytes) -> None:
    assert json.dumps(triage_text(raw).as_json())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(_PREFIXES), st.sampled_from([*_WORDS, "Traceback (most recent call last):"])),
        max_size=30,
    )
)
def test_shuffled_true_lines_never_crash_and_the_root_is_a_line_of_the_log(parts: list[tuple[str, str]]) -> None:
    lines = [prefix + words for prefix, words in parts]
    answer = triage_text("\n".join(lines))
    assert answer.root_line_no is None or answer.root_line == lines[answer.root_line_no - 1]
    assert answer.root_line_no not in answer.consequences
    assert (answer.stage is Stage.NONE) == (answer.family is None)


def test_tracebacks_of_two_processes_line_by_line_are_put_together_again() -> None:
    def lines(process: str, end: str) -> list[str]:
        body = [
            "Traceback (most recent call last):",
            '  File "/x/vllm/v1/worker/gpu_worker.py", line 1, in load_model',
            "    f()",
            end,
        ]
        return [f"({process}) ERROR 07-26 18:54:37 [multiproc_executor.py:511] {line}\n" for line in body]

    one, other = lines("Worker_TP0 pid=1", "RuntimeError: cancelled"), lines("Worker_TP1 pid=2", "MemoryError")
    mixed = "".join(line for pair in zip(one, other, strict=True) for line in pair)
    answer = triage_text(BANNER + mixed)
    assert (answer.root_line_no, answer.process, answer.family) == (9, "Worker_TP1", Family.OOM_HOST)


def test_a_stall_counts_while_serving_until_something_is_answered() -> None:
    stall = "(EngineCore pid=7) INFO 12-01 13:50:00 [shm_broadcast.py:466] No available shared memory broadcast block found in 60 seconds.\n"
    hung = triage_text("".join(STEPS) + stall * 3)
    assert (hung.stage, hung.family, hung.root_line_no) == (Stage.SERVING, Family.HANG, len(STEPS) + 1)
    assert triage_text("".join(STEPS) + stall + ANSWERED).stage is Stage.NONE
    loading = triage_text("".join(STEPS[:6]) + stall * 3)
    assert (loading.stage, loading.family, loading.root_line_no) == (Stage.WEIGHT_ACCESS, Family.HANG, 6)


def test_what_a_finaliser_raised_is_no_cause() -> None:
    ignored = (
        "Exception ignored in: <function LLMEngine.__del__ at 0x7f>\nTraceback (most recent call last):\n"
        '  File "/x/vllm/engine/llm_engine.py", line 1, in __del__\n    self.stop()\n'
        "AttributeError: 'LLMEngine' object has no attribute 'model_executor'\n"
    )
    fault = (
        "(EngineCore pid=7) ERROR 12-01 13:36:00 [core.py:9] ValueError: No available memory for the cache blocks.\n"
    )
    assert triage_text(BANNER + CONFIG + ignored + fault).root_line_no == 8


def test_a_log_header_with_a_date_that_is_none_does_not_crash() -> None:
    head = "(MainProcess pid=1) INFO 99-99 13:35 [serve.py:224] Launching vLLM (v0.32.0) headless multiproc executor, with head node\n"
    stop = "(MainProcess pid=1) INFO 12-01 99:99:99 [m.py:4] [shutdown] Executor: waiting for worker exit count=1\n"
    assert triage_text(
        head + LOADED + "(Worker pid=1) INFO 99-99 13:35 [m.py:4] Available KV cache memory: 3 GiB\n" + stop
    ).is_vllm_log


def test_the_clock_beats_the_place_on_one_host_but_not_between_hosts() -> None:
    late = "(EngineCore pid=7) ERROR 12-01 13:36:09 [core.py:9] ValueError: No available memory for the cache blocks.\n"
    early = "(Worker pid=9) ERROR 12-01 13:36:02 [worker.py:9] torch.OutOfMemoryError: CUDA out of memory.\n"
    assert triage_text(BANNER + late + early).root_line_no == 3
    assert triage_text(BANNER + late + early.replace("pid=9", "pid=9, ip=10.0.0.7")).root_line_no == 2
    assert triage_text(BANNER + late.replace("12-01", "12-31") + early.replace("12-01", "01-01")).root_line_no == 2


def test_bulk_of_one_shape_is_counted_but_not_kept() -> None:
    live = Triage()
    live.feed("".join(STEPS))
    for number in range(20_000):
        live.feed(f'INFO:     10.0.0.1:{number} - "POST /v1/completions HTTP/1.1" 200 OK\n')
    live.feed("(EngineCore pid=7) ERROR 12-01 15:00:00 [core.py:9] torch.OutOfMemoryError: CUDA out of memory.\n")
    answer = live.diagnose()
    assert answer.root_line_no == len(STEPS) + 20_001
    assert (answer.stage, answer.family) == (Stage.SERVING, Family.OOM_GPU)


@pytest.mark.parametrize(
    ("silence", "stuck", "expected"),
    [
        ("14:10:00", True, (Stage.SERVING, Family.HANG)),
        ("13:36:30", True, (Stage.SERVING, Family.ENGINE_DEAD)),
        ("14:10:00", False, (Stage.NONE, None)),
    ],
)
def test_a_stopped_headless_rank_hung_if_it_was_silent_for_longer_than_its_whole_start(
    silence: str, stuck: bool, expected: tuple[Stage, Family | None]
) -> None:
    head = "(MainProcess pid=1) INFO 12-01 13:35:00 [serve.py:224] Launching vLLM (v0.32.0) headless multiproc executor, with head node address 10.99.0.1:29600\n"
    cache = "(Worker_TP1 pid=9) INFO 12-01 13:36:00 [gpu_worker.py:260] Available KV cache memory: 3 GiB\n"
    stop = f"(MainProcess pid=1) INFO 12-01 {silence} [multiproc_executor.py:479] [shutdown] Executor: waiting for worker exit count=1\n"
    late = f"(MainProcess pid=1) WARNING 12-01 {silence} [multiproc_executor.py:491] [shutdown] Executor: workers still running after grace period; sending SIGTERM count=1\n"
    answer = triage_text(head + GROUP.replace("rank=0", "rank=1") + GROUPED + cache + stop + (late if stuck else ""))
    assert (answer.stage, answer.family) == expected
    assert answer.expected_next is None


def test_the_rank_is_that_of_the_process_of_the_root_line() -> None:
    ranks = "".join(GROUP.replace("pid=9", f"pid={90 + n}").replace("rank=0", f"rank={n}", 1) for n in range(4))
    fault = "(Worker_PP1_TP1 pid=93) ERROR 12-01 13:36:02 [worker.py:9] torch.OutOfMemoryError: CUDA out of memory.\n"
    answer = triage_text(BANNER + ranks + fault)
    assert (answer.process, answer.rank) == ("Worker_PP1_TP1", 3)
    assert answer.as_json()["rank"] == 3
    assert triage_text(BANNER + ranks + ENGINE).rank is None
    native = "[rank2]:[E1201 13:36:03.000000000 ProcessGroupNCCL.cpp:607] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n"
    assert triage_text(BANNER + native).rank == 2
