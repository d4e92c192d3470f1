"""docker run lines as they stand in READMEs."""

from __future__ import annotations

import pytest

from repro.domain.command import parse
from repro.domain.command.container import Container

README = r"""
docker run --runtime nvidia --gpus all \
    -v ~/.cache/huggingface:/root/.cache/huggingface \
    --env "HF_TOKEN=$HF_TOKEN" \
    -p 8000:8000 \
    --ipc=host \
    --name vllm_server \
    vllm/vllm-openai:latest \
    --model="meta-llama/Meta-Llama-3-8B-Instruct"
"""


def container_of(text: str) -> Container:
    container = parse(text).container
    assert container is not None
    return container


def test_the_line_of_the_readme() -> None:
    command = parse(README)
    container = container_of(README)
    assert (container.image, container.name, container.gpus, container.ipc) == (
        "vllm/vllm-openai:latest",
        "vllm_server",
        "all",
        "host",
    )
    assert container.mounts == ("$HOME/.cache/huggingface:/root/.cache/huggingface",)
    assert container.ports == ("8000:8000",)
    assert container.option("--runtime") == "nvidia"
    assert command.program == ("vllm", "serve")
    assert command.model == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert command.environment_from == ("HF_TOKEN",)
    assert command.unexpanded >= {"$HOME"}
    assert '-v "$HOME/.cache/huggingface:/root/.cache/huggingface"' in command.shell()
    assert parse(command.shell()) == command


def test_outside_values_reach_mounts_but_no_secret_does() -> None:
    command = parse(README, {"HOME": "/home/kim", "HF_TOKEN": "hf_secret"})
    assert "/home/kim/.cache/huggingface:/root/.cache/huggingface" in command.argv()
    assert "hf_secret" not in repr(command)
    assert command.argv()[8:10] == ("--env", "HF_TOKEN")


@pytest.mark.parametrize(
    ("image", "program"),
    [
        ("vllm/vllm-openai:kimi-k3", "vllm serve"),
        ("vllm/vllm-openai@sha256:c2914767605584b6", "vllm serve"),
        ("registry.example.com:5000/vllm/vllm-openai:v0.29.0", "vllm serve"),
        ("docker.io/vllm/vllm-openai-rocm:kimi-k3", "vllm serve"),
        ("vllm/vllm-openai:v0.6.3.post1", "python3 -m vllm.entrypoints.openai.api_server"),
        ("vllm/vllm-openai-xpu:latest", "python3 -m vllm.entrypoints.openai.api_server"),
    ],
)
def test_the_official_images_are_known(image: str, program: str) -> None:
    command = parse(f"docker run {image} --model m")
    assert " ".join(command.program) == program
    assert command.argv() == ("docker", "run", image, "--model", "m")


def test_options_that_matter_by_name() -> None:
    container = container_of(
        "docker run -dit --rm --network=host --shm-size 32g -u 1000:1000 --env-file a.env --env-file b.env "
        "--mount type=bind,src=/models,dst=/models -v /x:/y:ro --ulimit memlock=-1 --entrypoint vllm img serve m"
    )
    assert (container.network, container.shm_size, container.user, container.entrypoint) == (
        "host",
        "32g",
        "1000:1000",
        "vllm",
    )
    assert container.env_files == ("a.env", "b.env")
    assert container.mounts == ("/x:/y:ro", "type=bind,src=/models,dst=/models")
    assert container.option("--ulimit") == "memlock=-1"
    assert container.option("--rm") == "true"
    assert container.detached
    assert not container_of("docker run -it img vllm serve m").detached


def test_environment_of_a_container_is_changed_in_its_own_option() -> None:
    command = parse("docker run -e A=1 --env B=2 -e C img vllm serve m")
    assert (command.environment, command.environment_from) == ((("A", "1"), ("B", "2")), ("C",))
    changed = command.with_environment("B", "3").with_environment("D", "4").with_environment("A", None)
    assert changed.argv() == tuple("docker run --env B=3 -e C -e D=4 img vllm serve m".split())
    assert parse(changed.argv()) == changed
    assert command.with_environment("C", "5").environment_from == ()


def test_a_variable_inside_wins_over_the_option() -> None:
    command = parse("docker run -e A=1 --entrypoint bash img -c 'A=2 B=3 vllm serve m'")
    assert dict(command.environment) == {"A": "2", "B": "3"}
    assert parse(command.argv()) == command


def test_variables_in_front_of_the_client_are_the_clients() -> None:
    command = parse("DOCKER_HOST=unix:///x.sock docker run img vllm serve m")
    assert command.environment == ()
    assert command.argv()[:3] == ("env", "DOCKER_HOST=unix:///x.sock", "docker")
    assert parse(command.argv()) == command


def test_a_shell_around_docker_is_dropped() -> None:
    command = parse("sudo sh -c 'docker run img vllm serve m'")
    assert command.argv() == ("sudo", "docker", "run", "img", "vllm", "serve", "m")


def test_other_docker_commands_around_the_run_do_not_disturb() -> None:
    text = "docker pull img\ndocker rm -f old || true\ndocker run --name old img vllm serve m\ndocker logs -f old"
    assert parse(text).model == "m"


def test_what_only_a_shell_knows_may_stand_in_options_but_not_in_the_command() -> None:
    line = """docker run -u $(id -u):$(id -g) --name "vllm-$(date +%s)" -v "$PWD/a b:/x" -l 'a$b"c' img vllm serve m"""
    command = parse(line)
    assert command.container is not None
    assert command.container.user == "$(id -u):$(id -g)"
    assert '--name "vllm-$(date +%s)"' in command.shell()
    assert '-v "$PWD/a b:/x"' in command.shell()
    assert """-l 'a$b"c'""" in command.shell()
    assert parse(command.shell()) == command
