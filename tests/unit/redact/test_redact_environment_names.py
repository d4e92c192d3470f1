"""Which variables belong to a launch, which are secret, and what a scenario may hold of them."""

from __future__ import annotations

import pytest

from repro.redact.environment_names import is_launch_name, is_secret_name, split_environment
from repro.redact.redactor import Redactor


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_ENGINE_READY_TIMEOUT_S",
        "VLLM_STREAM_TOKEN_THRESHOLD",
        "NCCL_DEBUG",
        "CUDA_VISIBLE_DEVICES",
        "GLOO_SOCKET_IFNAME",
        "HF_HUB_OFFLINE",
        "PYTORCH_CUDA_ALLOC_CONF",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "OMP_NUM_THREADS",
        "LD_LIBRARY_PATH",
        "TOKENIZERS_PARALLELISM",
    ],
)
def test_a_launch_name_may_be_written(name: str) -> None:
    assert is_launch_name(name)
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "VLLM_API_KEY",
        "S3_ACCESS_KEY_ID",
        "S3_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ROLE_ARN",
        "WANDB_API_KEY",
        "OPENAI_API_KEY",
        "DB_PASSWORD",
        "CLIENT_SECRET",
        "DB_PASS",
        "GH_PAT",
        "AUTH",
        "VLLM_AUTH",
        "HF_HUB_PAT",
        "CREDS",
        "FOO_BEARER",
    ],
)
def test_a_secret_name_is_never_written(name: str) -> None:
    assert is_secret_name(name)
    assert not is_launch_name(name)


def test_split_environment() -> None:
    fixed, secrets = split_environment(
        {
            "VLLM_PORT": "1",
            "OMP_NUM_THREADS": "1",
            "HF_TOKEN": "abc",
            "HOME": "/root",
            "https_proxy": "http://me:pw@proxy:1",
            "http_proxy": "http://proxy:1",
            "AWS_SESSION_TOKEN": "abc",
            "AWS_CA_BUNDLE": "/etc/ssl/ca.pem",
            "GITHUB_TOKEN": "of the person, not of the server",
        }
    )
    assert fixed == {"OMP_NUM_THREADS": "1", "VLLM_PORT": "1", "http_proxy": "http://proxy:1"}
    assert secrets == ("AWS_SESSION_TOKEN", "HF_TOKEN", "https_proxy")


def test_the_redactor_keeps_secret_names_with_a_mask_and_leaves_others_out() -> None:
    environment = {"HF_TOKEN": "abc", "HOME": "/root", "VLLM_X": "a hf_aB3dE5gH7jK9mN1pQ3sT5", "HF_HOME": "/cache"}
    assert Redactor().environment(environment) == {
        "HF_HOME": "/cache",
        "HF_TOKEN": "***masked:hf_token:1***",
        "VLLM_X": "a ***masked:hf_token:2***",
    }


def test_a_folder_and_a_path_to_a_secret_are_not_hunted_for() -> None:
    redactor = Redactor()
    kept = redactor.environment(
        {
            "PWD": "/srv/app",
            "AWS_CA_BUNDLE": "/etc/ca.pem",
            "GOOGLE_APPLICATION_CREDENTIALS": "/etc/gcp",
            "DB_PWD": "hunt-me-1",
        }
    )
    assert "PWD" not in kept
    assert set(kept) == {"AWS_CA_BUNDLE", "GOOGLE_APPLICATION_CREDENTIALS", "DB_PWD"}
    assert all(value.startswith("***masked:") for value in kept.values())
    assert redactor.text("in /srv/app with /etc/ca.pem and /etc/gcp") == "in /srv/app with /etc/ca.pem and /etc/gcp"
    assert redactor.text("with hunt-me-1") == "with ***masked:db_pwd:1***"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("HF_TOKEN=$HF_TOKEN vllm serve m", True),
        ("HF_TOKEN=${HF_TOKEN:?} vllm serve m", True),
        ('docker run -e HF_TOKEN="${HF_TOKEN}" image', True),
        ("HF_TOKEN=${HF_TOKEN:-abcdef123456} vllm serve m", False),
        ("HF_TOKEN=$ecretOf8Letters! vllm serve m", False),
    ],
)
def test_a_reference_to_a_secret_is_no_secret(text: str, kept: bool) -> None:
    assert (Redactor().text(text) == text) is kept
