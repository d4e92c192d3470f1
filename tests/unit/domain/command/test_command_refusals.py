"""What is no vLLM server, and what cannot be looked into, is said with what to do."""

from __future__ import annotations

import pytest

from repro.domain.command import parse
from repro.errors import EXIT_USAGE, NotVllm, UnresolvedWrapper


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("   # only a comment\n", "empty"),
        ("ls -l /models", "ls -l /models"),
        ("vllm bench serve --model m", "vllm bench serve"),
        ("vllm", "vllm"),
        ("python -m sglang.launch_server --model m", "sglang.launch_server"),
        ("docker run img python3 -m sglang.launch_server", "sglang.launch_server"),
        ("vllm serve a & vllm serve b", "2 vLLM servers"),
        ("echo vllm serve m", "echo"),
    ],
)
def test_what_is_not_vllm(text: str, says: str) -> None:
    with pytest.raises(NotVllm) as raised:
        parse(text)
    assert says in raised.value.message
    assert "vllm serve MODEL" in raised.value.hint or "one of them" in raised.value.hint
    assert raised.value.exit_code == EXIT_USAGE


@pytest.mark.parametrize(
    "text",
    [
        "./start.sh --fast",
        "/srv/bin/launch.sh",
        "bash start.sh",
        "sudo -E bash /srv/start.sh",
        "source start.sh",
        "bash -c './start.sh'",
        "make serve",
        "systemctl start vllm",
        "python serve.py --model m",
        "sbatch job.slurm",
        "docker compose up -d",
        "docker start vllm",
        "docker run my/image",
        "docker run my/image --model m",
        "docker run lmcache/vllm-openai:nightly Qwen/Qwen3-14B",
        "docker run --entrypoint /start.sh my/image",
        "docker run -it --entrypoint bash vllm/vllm-openai:latest",
        "docker run -d",
        "for i in 1 2; do vllm serve m; done",
        "vllm serve $MODEL",
        "vllm serve m --port $(cat port)",
        'exec vllm serve "$@"',
        "vllm serve m ${ARGS[@]}",
        "vllm serve m 'unclosed",
        'vllm serve m "unclosed',
        "cat > c.yaml <<EOF\nport: 1\nEOF\nvllm serve m --config c.yaml",
        "vllm serve m > >(tee log)",
    ],
)
def test_what_cannot_be_looked_into(text: str) -> None:
    with pytest.raises(UnresolvedWrapper) as raised:
        parse(text)
    assert raised.value.message
    assert raised.value.hint


def test_an_argument_list_that_is_a_script_is_refused_too() -> None:
    with pytest.raises(UnresolvedWrapper, match=r"start\.sh"):
        parse(["/srv/start.sh", "--model", "m"])


def test_a_variable_is_named_and_a_given_value_helps() -> None:
    text = "vllm serve $MODEL --port ${PORT}"
    with pytest.raises(UnresolvedWrapper, match=r"\$MODEL, \$PORT"):
        parse(text)
    assert parse(text, {"MODEL": "m", "PORT": "1"}).argv() == ("vllm", "serve", "m", "--port", "1")


def test_a_dollar_in_an_argument_list_is_only_a_dollar() -> None:
    assert parse(["vllm", "serve", "$MODEL"]).model == "$MODEL"
