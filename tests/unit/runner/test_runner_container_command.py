"""What of production's docker run line goes into every trial, and what belonged to that one run."""

from __future__ import annotations

import pytest

from repro.domain.command import parse
from repro.domain.launch import Launch
from repro.errors import UsageError
from repro.runner.container_command import ContainerCommand, container_command

IMAGE = "sha256:abc"


def made(
    line: str, keep_listen: bool = False, **launch: tuple[tuple[str, str], ...] | tuple[str, ...]
) -> ContainerCommand:
    command = parse(line)
    assert command.container is not None
    return container_command(Launch(command, **launch), command.container, IMAGE, keep_listen)  # type: ignore[arg-type]


def test_productions_own_options_stay_and_those_of_its_run_go() -> None:
    line = (
        "sudo docker -H unix:///x run -d --rm --name prod --restart=always --pull always --gpus all --ipc=host "
        "--shm-size 8g --ulimit memlock=-1 -v /data:/data:ro --env-file /e --log-driver none --log-opt max-size=1m "
        "-e A=1 -e HF_TOKEN -p 8000:8000 -p 127.0.0.1:9400:9400 vllm/vllm-openai:v0.20.0 --model m --max-num-seqs 4"
    )
    command = made(line)
    assert command.client == ("sudo", "docker", "-H", "unix:///x")
    assert command.options == (
        *("--publish", "127.0.0.1::8000", "--gpus", "all", "--ipc=host", "--shm-size", "8g", "--ulimit", "memlock=-1"),
        *("-v", "/data:/data:ro", "--env-file", "/e", "-e", "A=1", "-e", "HF_TOKEN", "-p", "127.0.0.1:9400:9400"),
        *("--log-driver", "json-file", IMAGE, "--model", "m", "--max-num-seqs", "4", "--host", "0.0.0.0"),
    )
    assert command.published


def test_the_scenarios_environment_stands_before_productions_and_secrets_go_by_name() -> None:
    command = made(
        "docker run -e B=2 vllm/vllm-openai m",
        environment=(("A", "0"), ("B", "0")),
        environment_from=("HF_TOKEN",),
    )
    assert command.options[:8] == (*("--env", "A=0", "--env", "HF_TOKEN", "--publish", "127.0.0.1::8000", "-e", "B=2"),)


def test_on_the_hosts_network_the_port_is_vllms_own() -> None:
    command = made("docker run --network host vllm/vllm-openai m --port 8000")
    assert not command.published
    assert "--publish" not in command.options
    assert command.port != "8000"
    assert command.options[-1] == "127.0.0.1" or command.port in command.options
    kept = made("docker run --net=host vllm/vllm-openai m --port 8123", keep_listen=True)
    assert (kept.port, kept.options[-2:]) == ("8123", ("--port", "8123"))


def test_a_server_that_listens_on_loopback_inside_is_moved_to_where_it_is_published() -> None:
    command = made("docker run vllm/vllm-openai m --host 127.0.0.1 --port 9000 --uds /x")
    assert command.options[:2] == ("--publish", "127.0.0.1::9000")
    assert command.options[-5:] == ("m", "--host", "0.0.0.0", "--port", "9000")
    kept = made("docker run -p 80:9000 vllm/vllm-openai m --port 9000", keep_listen=True)
    assert kept.options[:2] == ("-p", "80:9000")


@pytest.mark.parametrize(
    ("cluster", "left"),
    [("-dit", ("-it",)), ("-d", ()), ("-itd", ("-it",)), ("-dp 81:80", ("-p", "81:80")), ("-v/d:/d", ("-v/d:/d",))],
)
def test_detaching_is_taken_out_of_a_cluster(cluster: str, left: tuple[str, ...]) -> None:
    options = made(f"docker run {cluster} --network host vllm/vllm-openai m").options
    assert options[: options.index("--network")] == left


def test_podman_is_its_own_client() -> None:
    assert made("podman container run --network host vllm/vllm-openai m").client == ("podman",)


@pytest.mark.parametrize("network", ["none", "container:other"])
def test_what_cannot_be_reached_is_refused(network: str) -> None:
    with pytest.raises(UsageError, match="cannot be reached"):
        made(f"docker run --network {network} vllm/vllm-openai m")
