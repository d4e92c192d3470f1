"""The container's facts, its tag compared with its image, restarts; a daemon that stops answering costs its part."""

from __future__ import annotations

from typing import Any

import pytest

from repro.domain.fingerprint import Fact
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context
from repro.snapshot.container import ContainerCollector, restarted
from tests.fakes.docker import FakeDocker, container_facts, image_facts

IMAGE_ID = "sha256:" + "a" * 64
TAG = "vllm/vllm-openai:kimi-k3"
ARGV = ("vllm", "serve", "m", "--api-key", "the-served-key", "--max-model-len", "8192")
ENVIRONMENT = {"HF_TOKEN": "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9c", "NCCL_DEBUG": "INFO", "MOOD": "private"}


def made(**state: Any) -> dict[str, Any]:
    facts = container_facts("d" * 64, "prod", ARGV, TAG, IMAGE_ID, ENVIRONMENT, **state)
    facts["HostConfig"] |= {
        "Memory": 4 << 30,
        "Ulimits": [{"Name": "memlock", "Soft": -1, "Hard": -1}],
        "DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}],
        "Devices": [{"PathOnHost": "/dev/infiniband/uverbs0"}],
        "IpcMode": "host",
    }
    facts["Mounts"] = [{"Type": "bind", "Source": "/models", "Destination": "/m", "RW": False}]
    return facts


def collect(docker: FakeDocker | None, facts: dict[str, Any] | None) -> dict[str, Fact]:
    context = Context(Redactor(), docker=docker, container=facts)
    return dict(ContainerCollector(lambda name: "1.17.8" if name == "nvidia-ctk" else None).collect(context))


def test_everything_that_was_asked_for_is_there_and_no_secret() -> None:
    label = image_facts(IMAGE_ID, TAG, **{"org.opencontainers.image.revision": "98dff2a8"})
    facts = collect(FakeDocker(images=[label]), made())
    assert set(facts) == set(ContainerCollector.fields)
    assert [name for name, fact in facts.items() if not fact.known] == []
    assert facts["docker"].value["containerd"] == "1.7.27"
    assert facts["runtime"].value["used"] == "runc"
    assert facts["toolkit"].value == {"nvidia-ctk": "1.17.8"}
    assert facts["labels"].value == {"org.opencontainers.image.revision": "98dff2a8"}
    assert facts["argv"].value[-2:] == ["--max-model-len", "8192"]
    assert facts["limits"].value["shm_size"] == 64 << 20
    assert facts["limits"].value["memory"] == 4 << 30
    assert facts["limits"].value["ulimits"] == {"memlock": [-1, -1]}
    assert facts["gpus"].value[0]["count"] == -1
    assert facts["devices"].value == ["/dev/infiniband/uverbs0"]
    assert facts["mounts"].value[0]["destination"] == "/m"
    assert set(facts["environment"].value) == {"HF_TOKEN", "NCCL_DEBUG"}
    assert facts["state"].value["started"] == 1_796_119_201.25
    assert facts["tag_now"].value == {"reference": TAG, "image_id": IMAGE_ID, "same": True}
    everything = repr(facts)
    for secret in ("the-served-key", ENVIRONMENT["HF_TOKEN"], "private"):
        assert secret not in everything


@pytest.mark.parametrize("now", [image_facts("sha256:" + "b" * 64, TAG), None])
def test_a_tag_that_moved_or_is_gone_is_told(now: dict[str, Any] | None) -> None:
    images = [image_facts(IMAGE_ID), *([now] if now else [])]
    tag = collect(FakeDocker(images=images), made())["tag_now"].value
    assert tag["same"] is False
    assert tag["image_id"] == (now["Id"] if now else None)


def test_an_image_id_is_no_tag() -> None:
    facts = made()
    facts["Config"]["Image"] = IMAGE_ID
    assert "made from an image id" in collect(FakeDocker(images=[image_facts(IMAGE_ID)]), facts)["tag_now"].reason


def test_how_it_ended() -> None:
    ended = made(Status="exited", Running=False, OOMKilled=True, ExitCode=137, FinishedAt="2026-12-01T11:00:00Z")
    state = collect(FakeDocker(images=[image_facts(IMAGE_ID, TAG)]), ended)["state"].value
    assert (state["exit_code"], state["oom_killed"]) == (137, True)
    assert state["finished"] - state["started"] == pytest.approx(3598.75)


def test_restarts_are_named() -> None:
    assert restarted(made()) is None
    assert "restarted it 4 times" in str(restarted(made(RestartCount=4)))
    by_hand = made(FinishedAt="2026-12-01T09:59:00Z")
    assert "by hand" in str(restarted(by_hand))
    assert restarted(made(Running=False, FinishedAt="2026-12-01T11:00:00Z")) is None


def test_a_daemon_that_stopped_meanwhile_costs_only_what_it_would_tell() -> None:
    docker = FakeDocker()
    docker.down = True
    facts = collect(docker, made())
    assert facts["argv"].known
    assert facts["image_id"].value == IMAGE_ID
    for name in ("docker", "runtime", "labels", "repo_digests", "tag_now"):
        assert "Docker does not answer" in facts[name].reason


def test_without_a_container_the_daemon_still_tells_of_itself() -> None:
    facts = collect(FakeDocker(), None)
    assert facts["docker"].known
    assert facts["argv"].reason == "no container was named"
    assert set(collect(None, None)) == set(ContainerCollector.fields)
