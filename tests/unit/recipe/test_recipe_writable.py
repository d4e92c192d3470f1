"""What cannot be written down is refused or masked before a search begins, never silently changed by writing it."""

from __future__ import annotations

import pytest

from repro.domain.command import parse
from repro.domain.request import CHAT, Request
from repro.domain.scene import Scene
from repro.errors import UsageError
from repro.recipe.asked import Asked
from repro.recipe.find import find_recipe
from repro.recipe.minimal import derive
from repro.recipe.writable import writable
from repro.redact.redactor import Redactor


def scene(line: str, request: Request | None = None) -> Scene:
    return derive(parse(line), find_recipe("generic"), Asked(request=request), name="s").scene


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("vllm serve m --otlp-traces-endpoint http://me:hunter2hunter2@host:4317", "--otlp-traces-endpoint"),
        ("""vllm serve m --kv-transfer-config '{"password": "hunter2hunter2"}'""", "--kv-transfer-config"),
        ("vllm serve m --additional-config.s3_secret_key=AbCdEf0123456789AbCdEf", "--additional-config"),
    ],
)
def test_a_secret_in_a_flag_is_refused_with_its_name(line: str, named: str) -> None:
    with pytest.raises(UsageError, match="holds a secret") as seen:
        writable(scene(line), Redactor())
    assert named in seen.value.message
    assert "hunter2" not in seen.value.message + seen.value.hint


def test_a_secret_in_a_request_is_masked_before_it_is_ever_sent() -> None:
    secret = "hf_aB3dE5gH7jK9mN1pQ3sT5uV7"
    body = {"model": "m", "messages": [{"role": "user", "content": f"my token is {secret}"}], "max_tokens": 4}
    masked, notes = writable(scene("vllm serve m", Request.of(CHAT, body)), Redactor())
    assert masked.request is not None
    assert secret not in masked.request.body_json
    assert "***masked" in masked.request.body_json
    assert len(notes) == 1
    again, silent = writable(masked, Redactor())
    assert again == masked
    assert silent == ()


def test_an_ordinary_scene_stays_as_it_is() -> None:
    plain = scene("NCCL_DEBUG=INFO vllm serve m --max-num-batched-tokens 8192 --tokenizer t")
    assert writable(plain, Redactor()) == (plain, ())
