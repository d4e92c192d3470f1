"""Shell text, argument lists and docker lines are understood, and written back without loss."""

from __future__ import annotations

import shlex

import pytest

from repro.domain.command import Command, parse

K3_RECIPE = (
    "vllm serve moonshotai/Kimi-K3 --tensor-parallel-size 8 --trust-remote-code --load-format fastsafetensors "
    "--no-enable-flashinfer-autotune --max-model-len 1048576 --kv-cache-dtype fp8 --enable-prefix-caching "
    "--gpu-memory-utilization 0.95 --enable-auto-tool-choice --tool-call-parser kimi_k3 --reasoning-parser kimi_k3"
)
K3_PRODUCTION = r"""
#!/usr/bin/env bash
set -euo pipefail            # a launch script as it lies on a node
export VLLM_ENGINE_READY_TIMEOUT_S=3600
export VLLM_ALLREDUCE_USE_FLASHINFER=1 VLLM_USE_V2_MODEL_RUNNER=1
MODEL=moonshotai/Kimi-K3
TP=8
EXTRA="--max-num-seqs 48 --max-num-batched-tokens 32k"

NCCL_CUMEM_ENABLE=1 exec numactl --cpunodebind=0 vllm serve "$MODEL" \
    -tp ${TP} \
    --decode-context-parallel-size ${DCP:-8} \
    --speculative-config '{"model": "RedHatAI/Kimi-K3-speculator.dspark", "num_speculative_tokens": 8,
                           "method": "dspark"}' \
    --attention-config.mla_prefill_backend TRTLLM_RAGGED \
    -cc.pass_config.fuse_allreduce_rms=false \
    $EXTRA 2>&1 | tee -a /var/log/vllm.log
"""


def test_the_recipe_command_of_kimi_k3() -> None:
    command = parse(K3_RECIPE)
    assert command.program == ("vllm", "serve")
    assert command.model == "moonshotai/Kimi-K3"
    assert command.flag("-tp") == "8"
    assert command.flag("trust_remote_code") is True
    assert command.flag("--enable-flashinfer-autotune") is False
    assert command.flag("--enable-prefix-caching") is True
    assert command.flag("--max-num-seqs") is None
    assert command.unknown_flags == ()
    assert command.argv() == tuple(K3_RECIPE.split())
    assert command.shell() == K3_RECIPE


def test_a_launch_script_with_variables_continuations_and_a_pipe() -> None:
    command = parse(K3_PRODUCTION)
    assert command.model == "moonshotai/Kimi-K3"
    assert command.launcher == ("numactl", "--cpunodebind=0")
    assert dict(command.environment) == {
        "VLLM_ENGINE_READY_TIMEOUT_S": "3600",
        "VLLM_ALLREDUCE_USE_FLASHINFER": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
        "NCCL_CUMEM_ENABLE": "1",
    }
    assert command.flag("--tensor-parallel-size") == "8"
    assert command.flag("-dcp") == "8"
    assert command.flag("--max-num-batched-tokens") == "32k"
    assert command.flag("--speculative-config.num_speculative_tokens") == "8"
    assert command.flag("--speculative-config.method") == "dspark"
    assert command.flag("--attention-config") == '{"mla_prefill_backend": "TRTLLM_RAGGED"}'
    assert command.flag("--compilation-config.pass_config.fuse_allreduce_rms") == "false"
    assert command.unknown_flags == ()
    assert command.prelude == ()
    assert parse(command.shell()) == command


SAME_TOKENS = [
    "vllm serve m",
    "vllm serve --enforce-eager m --port 80",
    "vllm serve m -tp=8 -pp 2 -ep -n2 -r 0",
    "vllm serve m -O3",
    "vllm serve m -O 3",
    "vllm serve m -O=3",
    """vllm serve m -O '{"level":3}'""",
    "vllm serve m -O.level=3",
    "vllm serve m --max_model_len=32K --max-num_seqs 4",
    "vllm serve m --served-model-name a b c --port 1",
    "vllm serve m --middleware a.b --middleware c.d",
    "vllm serve m --seed -1 --max-model-len -1",
    "vllm serve m --chat-template=-odd-",
    "vllm serve m --hf-token --hf-overrides '{}'",
    "vllm serve m --hf-token=abc",
    "vllm serve m --compilation-config.cudagraph_capture_sizes+ 1,2,4",
    "vllm serve m --enable-chunked-prefill False --no-async-scheduling",
    "vllm serve m --port 1 --port 2",
    "vllm serve m --no-such-thing --typo 3 --other=4",
    "vllm serve m stray --port 1",
    "/opt/venv/bin/vllm serve m",
    "/opt/venv/bin/python3.12 /opt/venv/bin/vllm serve m",
    "python3 -u -m vllm.entrypoints.openai.api_server --model m",
    "python -X dev -m vllm.entrypoints.cli.main serve m",
    "python -m repro.simulator serve m",
    "python /usr/lib/python3/vllm/entrypoints/openai/api_server.py --model m",
    "nohup setsid vllm serve m",
    "sudo -u vllm -E A=1 vllm serve m",
    "env -u B A=1 C='x y' vllm serve m",
    "srun -N 2 --ntasks=2 vllm serve m --nnodes 2",
    "timeout 600 uv run --with vllm vllm serve m",
    "conda run -n vllm python -m vllm.entrypoints.openai.api_server --model m",
    "vllm serve '/모델/키미 K3' --served-model-name '이름'",
    """vllm serve m --chat-template "it's \\"quoted\\" \\\\ end" """,
    "bash -lc 'vllm serve m --port 1'",
    "docker run --rm -it --gpus=all --shm-size 16g -p8000:8000 vllm/vllm-openai:v0.27.1 m --port 1",
    "podman run --net host -e A=1 -eB=2 --env=C=3 docker.io/vllm/vllm-openai-rocm:kimi-k3 m",
    "docker run --entrypoint python3 img -m vllm.entrypoints.openai.api_server --model m",
    "docker run --entrypoint bash img -c 'vllm serve m'",
    "docker run img vllm serve m",
    "docker run img env A=1 vllm serve m",
    "sudo docker --context far container run -d img vllm serve m",
]


@pytest.mark.parametrize("line", SAME_TOKENS)
def test_what_is_untouched_comes_back_token_by_token(line: str) -> None:
    words = tuple(shlex.split(line))
    command = parse(words)
    assert command.argv() == words
    assert parse(line) == command
    assert parse(command.shell()) == command
    assert parse(command.argv()) == command


def test_pairs_in_front_are_environment_and_not_arguments() -> None:
    command = parse("A=1 B='x y' C= vllm serve m")
    assert command.environment == (("A", "1"), ("B", "x y"), ("C", ""))
    assert command.argv() == ("vllm", "serve", "m")
    assert command.shell() == "A=1 B='x y' C= vllm serve m"


def test_a_variable_that_is_handed_on_is_taken_by_name() -> None:
    outside = {"HF_TOKEN": "hf_secret", "HOME": "/root"}
    command = parse('HF_TOKEN="$HF_TOKEN" A=$HOME/x vllm serve m', outside)
    assert command.environment_from == ("HF_TOKEN",)
    assert command.environment == (("A", "/root/x"),)
    assert "hf_secret" not in repr(command) + command.shell()
    assert parse(command.shell()) == command


def test_a_shell_text_in_an_argument_is_understood() -> None:
    command = parse(["bash", "-euo", "pipefail", "-c", "cd /srv && export A=1; exec vllm serve m --port 1 > log"])
    assert command.wrapper == ("bash", "-euo", "pipefail", "-c")
    assert command.prelude == ("cd /srv &&",)
    assert command.environment == (("A", "1"),)
    assert command.argv()[-1] == "cd /srv && A=1 exec vllm serve m --port 1"


@pytest.mark.parametrize(
    "text", ["sh -lc 'exec vllm serve m'", "A=1 bash -c 'vllm serve m'", "sudo bash -c 'vllm serve m'"]
)
def test_shells_around_a_command_keep_its_meaning(text: str) -> None:
    command = parse(text)
    assert (command.model, command.program) == ("m", ("vllm", "serve"))
    assert parse(command.argv()) == command


def test_one_quoted_word_is_a_whole_line() -> None:
    assert parse(["vllm serve m --port 1"]) == parse("vllm serve m --port 1")


@pytest.mark.parametrize(
    ("text", "unknown", "extras"),
    [
        ("vllm serve m --max-model-lenn 4096", ("--max-model-lenn",), ()),
        ("vllm serve m —port 80", (), ("—port", "80")),
        ("vllm serve m -tp8", ("-tp8",), ()),
        ("vllm serve m --no-max-model-len", ("--max-model-len",), ()),
        ("vllm serve m --swap-space 4 --disable-log-requests --guided-decoding-backend x", (), ()),
        ("vllm serve m --tensor-parallel 8", (), ()),
    ],
)
def test_a_wrong_flag_is_kept_and_told_apart(text: str, unknown: tuple[str, ...], extras: tuple[str, ...]) -> None:
    command = parse(text)
    assert (command.unknown_flags, command.extras) == (unknown, extras)
    assert command.argv() == tuple(text.split())


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("vllm serve --model m --port 1", "m"),
        ("vllm serve --port 1 m", "m"),
        ("vllm serve --enable-prefix-caching m", "m"),
        ("vllm serve --port 1 -- m", "m"),
        ("vllm serve --config c.yaml", None),
        ("vllm serve --served-model-name a m", None),
    ],
)
def test_where_the_model_stands(text: str, model: str | None) -> None:
    assert parse(text).model == model


def test_a_command_built_by_hand_is_written_and_read_back() -> None:
    command = Command(("vllm", "serve"), "m").with_flag("--port", "1").with_flag("--enforce-eager", True)
    assert command.argv() == ("vllm", "serve", "m", "--port", "1", "--enforce-eager")
    assert parse(command.argv()) == command


def test_a_script_may_use_what_only_a_shell_knows_beside_the_command() -> None:
    text = """
        cd "$(dirname "$0")" || exit 1
        LOG=/var/log/vllm-$(date +%F).log
        export PATH=/opt/bin:$PATH A=1
        GPUS=$(nvidia-smi -L | wc -l)
        nohup vllm serve m --port 1 >> "$LOG" 2>&1 &
        echo $! > vllm.pid
    """
    command = parse(text)
    assert command.argv() == ("nohup", "vllm", "serve", "m", "--port", "1")
    assert command.environment == (("A", "1"),)
    assert command.prelude == ('cd "$(dirname "$0")" || exit 1 ;', "export PATH=/opt/bin:$PATH A=1 ;")
    assert parse(text, {"PATH": "/bin"}).environment == (("PATH", "/opt/bin:/bin"), ("A", "1"))
