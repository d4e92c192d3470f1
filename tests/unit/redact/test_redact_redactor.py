"""Twenty planted secrets disappear, look-alikes stay, and redacting twice is redacting once."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.redact.redactor import Redactor

HF = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9c"
OPENAI = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0"
AWS_ID = "AKIA" + "IOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI" + "/K7MDENG/bPxRfiCYEXAMPLEKEY"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0" + ".dBjftJeZ4CVPmB92K27uhbUJU1p1r"
GITHUB = "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a"
SLACK = "xoxb-" + "123456789012-abcdefGHIJKL"
KEY_BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7"
KEY = f"-----BEGIN PRIVATE KEY-----\n{KEY_BODY}\n{KEY_BODY[::-1]}\n-----END PRIVATE KEY-----"
KNOWN = "correct horse/battery+staple"

PLANTED = [
    ("hub token in a sentence", f"could not log in with {HF} at the hub", HF),
    ("OpenAI key", f"key {OPENAI}, used", OPENAI),
    ("AWS key id", f"aws_access_key_id = {AWS_ID}", AWS_ID),
    ("AWS secret by its name", f"AWS_SECRET_ACCESS_KEY={AWS_SECRET}", AWS_SECRET),
    ("JWT", f"cookie jar: {JWT}", JWT),
    ("private key", f"loaded\n{KEY}\nnext", KEY_BODY),
    ("private key in JSON", json.dumps({"pem": KEY}), KEY_BODY),
    ("password in a URL", "postgres://bob:hunter-two!@db.local/x", "hunter-two!"),
    ("proxy", "https_proxy=http://me:pr0xypass@proxy:3128", "pr0xypass"),
    ("token as a URL's user", "https://0123456789abcdef0123@git.local/x.git", "0123456789abcdef0123"),
    (
        "signed URL",
        "https://b.local/w?X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027&x=1",
        "fe5f80f77d5fa3beca038a248ff027",
    ),
    ("bearer header", "-H 'Authorization: Bearer abc.def-123456'", "abc.def-123456"),
    ("basic header", "Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("GitHub token", f"remote: https://x-access-token:{GITHUB}@github.com/a/b", GITHUB),
    ("Slack token", f"notify({SLACK})", SLACK),
    ("JSON key", '{"api_key": "plainpassword", "n": 1}', "plainpassword"),
    ("JSON inside a string", json.dumps(json.dumps({"password": "innermost"})), "innermost"),
    ("Python dict", "non-default args: {'hf_token': 'shortish', 'port': 1}", "shortish"),
    ("flag in a shell line", "vllm serve m --api-key letmein --port 1", "letmein"),
    ("flag with =", "vllm serve m --api-key=letmein2 --port 1", "letmein2"),
    ("hub token after a colour code", f"\x1b[0;36m{HF}\x1b[0;0m", HF),
    ("hub token after an escaped line end", json.dumps(f"a\n{HF}"), HF),
    ("hub token in an encoded URL", f"next=%3Ft%3D{HF}", HF),
    ("password after a colour code", "\x1b[31mpassword: hunter-two-1", "hunter-two-1"),
    ("password after an escaped line end", json.dumps("a\npassword=hunter-two-2"), "hunter-two-2"),
    ("list of keys", "api_key=['first-one', 'second-one']", "second-one"),
    ("random value after a likely name", "webhook_token: 9f8e7d6c5b4a39281706f5e4", "9f8e7d6c5b4a39281706f5e4"),
    ("known secret", f"I said {KNOWN} aloud", KNOWN),
    ("known, URL-encoded", f"?q={quote(KNOWN, safe='')}", quote(KNOWN, safe="")),
    ("known, base64", base64.b64encode(KNOWN.encode()).decode(), base64.b64encode(KNOWN.encode()).decode()[:-4]),
    ("known, in basic auth", base64.b64encode(f"me:{KNOWN}".encode()).decode(), "cmVjdCBob3JzZS9iYXR0ZXJ5"),
]

LOOK_ALIKES = [
    "max_tokens=4096",
    '{"max_tokens": 512, "token_ids": [1, 2, 3], "stop_token_ids": [7]}',
    "VLLM_STREAM_TOKEN_THRESHOLD=512",
    "--max-num-batched-tokens 8192 --tokenizer-mode auto",
    "tokenizer=/models/Qwen3-0.6B, skip_tokenizer_init=False",
    '"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"',
    "KeyError: 'model.layers.0.self_attn.k_proj.weight'",
    "error: argument --api-key: expected at least one argument",
    "cache_key: 4f0c1b2a9d8e7f6a5b4c3d2e1f0a9b8c",
    "ssl_keyfile=None, api_key=None, hf_token=None",
    "task-scheduler-0123456789 and risk-1234567890abcdef1234",
    "http://127.0.0.1:8000/v1/chat/completions",
    "image vllm/vllm-openai@sha256:c2914767605584b6c2914767605584b6c2914767605584b6c2914767605584b6",
    'exec: "/etc/passwd": permission denied',
    "\x1b[0mnmax_tokens=4 \\nmax_tokens=5",
    "docker run -v /run/secrets:/run/secrets x",
    "git@github.com:vllm-project/vllm.git ssh://git@github.com/vllm-project/vllm",
    "(EngineCore pid=42) ERROR 11-30 10:00:00 [core.py:1] bearer of bad news: token budget 8192",
]


@pytest.mark.parametrize(("text", "secret"), [p[1:] for p in PLANTED], ids=[p[0] for p in PLANTED])
def test_a_planted_secret_is_gone(text: str, secret: str) -> None:
    assert secret in text
    redactor = Redactor({"MY_SECRET": KNOWN})
    masked = redactor.text(text)
    assert secret not in masked
    assert "***masked:" in masked
    assert sum(redactor.counts.values()) >= 1
    assert redactor.text(masked) == masked


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_a_look_alike_stays(text: str) -> None:
    redactor = Redactor({"MY_SECRET": KNOWN})
    assert redactor.text(text) == text
    assert redactor.argv(text.split(" ")) == tuple(text.split(" "))
    assert not redactor.counts


def test_all_of_them_in_one_document() -> None:
    document = "\n".join([p[1] for p in PLANTED] + LOOK_ALIKES)
    masked = Redactor({"MY_SECRET": KNOWN}).text(document)
    assert [p[0] for p in PLANTED if p[2] in masked] == []
    assert [text for text in LOOK_ALIKES if text not in masked] == []
    assert masked.count("\n") == document.count("\n")


def test_masks_name_the_rule_and_equal_secrets_get_equal_masks() -> None:
    other = HF[:-1] + "Z"
    redactor = Redactor()
    assert redactor.text(f"{HF} {other} {HF}") == (
        "***masked:hf_token:1*** ***masked:hf_token:2*** ***masked:hf_token:1***"
    )
    assert redactor.environment({"HF_TOKEN": HF}) == {"HF_TOKEN": "***masked:hf_token:1***"}
    assert redactor.counts == {"hf_token": 4}


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--api-key", "k", "--port", "1"], ("--api-key", "***masked:api_key:1***", "--port", "1")),
        (
            ["--api-key", "k1", "k2", "-tp", "8"],
            ("--api-key", "***masked:api_key:1***", "***masked:api_key:2***", "-tp", "8"),
        ),
        (["--api-key=k"], ("--api-key=***masked:api_key:1***",)),
        (["--hf-token", HF], ("--hf-token", "***masked:hf_token:1***")),
        (["--hf-token", "--port", "1"], ("--hf-token", "--port", "1")),
        (["-e", "HF_TOKEN=abc", "-e", "A=b"], ("-e", "HF_TOKEN=***masked:hf_token:1***", "-e", "A=b")),
        (["--env=WANDB_API_KEY=abc"], ("--env=WANDB_API_KEY=***masked:wandb_api_key:1***",)),
        (
            ["long-secret", "--api-key", "long-secret"],
            ("***masked:api_key:1***", "--api-key", "***masked:api_key:1***"),
        ),
        (["--user", "1000:1000", "-v", "/a:/b:ro"], ("--user", "1000:1000", "-v", "/a:/b:ro")),
        (
            ["bash", "-c", "vllm serve m --hf-token abcd"],
            ("bash", "-c", "vllm serve m --hf-token ***masked:hf_token:1***"),
        ),
    ],
)
def test_argv(argv: list[str], expected: tuple[str, ...]) -> None:
    assert Redactor().argv(argv) == expected


def test_a_secret_seen_in_argv_is_found_in_the_log_too() -> None:
    redactor = Redactor()
    redactor.argv(["--api-key", "sesame-open"])
    assert redactor.text("client sent sesame-open") == "client sent ***masked:api_key:1***"


def test_json_is_masked_at_every_depth() -> None:
    body = {
        "messages": [{"content": f"my token is {HF}"}],
        "extra": {"headers": {"X-Api-Key": "abc"}, "password": 1234},
    }
    masked = json.dumps(Redactor().json(body))
    assert HF not in masked
    assert "abc" not in masked
    assert "1234" not in masked
    schema = {"properties": {"api_key": {"type": "string"}}, "required": ["api_key"], "max_tokens": 5}
    assert Redactor().json(schema) == schema


def test_a_key_over_several_log_lines_keeps_the_line_numbers() -> None:
    log = [f"(APIServer pid=1) {line}\n" for line in ["before", *KEY.split("\n"), "after abcdefghijklmnopqrstuvwxyz"]]
    masked = list(Redactor().lines(log))
    assert len(masked) == len(log)
    assert all(line.endswith("\n") for line in masked)
    assert KEY_BODY not in "".join(masked)
    assert KEY_BODY[::-1] not in "".join(masked)
    assert masked[0] == log[0]
    assert masked[-1] == log[-1]


FRAGMENTS = st.one_of(
    st.sampled_from([p[1] for p in PLANTED] + LOOK_ALIKES + [p[2] for p in PLANTED]),
    st.sampled_from(
        ["password=", "--api-key ", "token: ", "Bearer ", "://", "@", "'", '"', "\\", "***", "masked:", "=", " "]
    ),
    st.text(max_size=12),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(FRAGMENTS, max_size=8))
def test_redacting_twice_is_redacting_once(fragments: list[str]) -> None:
    redactor = Redactor({"MY_SECRET": KNOWN})
    text = "".join(fragments)
    once = redactor.text(text)
    assert redactor.text(once) == once
    assert Redactor({"MY_SECRET": KNOWN}).text(once) == once
    assert once.count("\n") == text.count("\n")
    argv = redactor.argv(fragments)
    assert redactor.argv(argv) == argv
    body = redactor.json({"password": fragments, "text": text})
    assert redactor.json(body) == body


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=5), st.binary(max_size=5))
def test_a_known_secret_is_found_in_base64_whatever_stands_around_it(before: bytes, after: bytes) -> None:
    secret = "an-unguessable-value"
    encoded = base64.b64encode(before + secret.encode() + after).decode()
    assert "***masked:it:1***" in Redactor({"it": secret}).text(encoded)


def test_a_short_known_secret_is_masked_as_a_word_only() -> None:
    redactor = Redactor({"API_KEY": "test", "OTHER_TOKEN": "EMPTY"})
    assert redactor.text("test testing EMPTY") == "***masked:api_key:1*** testing EMPTY"


def test_a_secret_among_many_lines_is_found_wherever_the_reading_ahead_ends() -> None:
    for place in (0, 1, 62, 63, 64, 65, 199):
        log = ["nothing to see\n"] * 200
        log[place] = f"token: {HF}\n"
        masked = list(Redactor().lines(log))
        assert masked.pop(place) == "token: ***masked:hf_token:1***\n"
        assert masked == ["nothing to see\n"] * 199


@settings(max_examples=80, deadline=None)
@given(st.lists(FRAGMENTS.filter(lambda text: "\n" not in text), max_size=8))
def test_a_log_is_masked_as_its_lines_are(lines: list[str]) -> None:
    by_line = Redactor({"MY_SECRET": KNOWN})
    assert list(Redactor({"MY_SECRET": KNOWN}).lines(lines)) == [by_line.text(line) for line in lines]
