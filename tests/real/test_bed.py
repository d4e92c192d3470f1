"""The bed itself: a healthy start, planted defects without a flag, launches that are counted. One launch, or two."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real.bed import install
from tests.real.bed.damaged import DAMAGES, damaged
from tests.real.bed.defects import Defect
from tests.real.bed.launches import Ledger
from tests.real.bed.server import Server

THRESHOLD = 300


def test_a_second_installation_does_nothing(ledger: Ledger, capfd: pytest.CaptureFixture[str]) -> None:
    program = install.install()
    assert program.exists()
    assert "nothing to do" in capfd.readouterr().out


def test_an_unfinished_installation_is_not_taken_for_one(tmp_path: Path) -> None:
    assert not install.is_installed(tmp_path)
    (tmp_path / install.STAMP).write_text('{"wanted": "another recipe"}')
    assert not install.is_installed(tmp_path)


def test_a_launch_is_counted_and_becomes_the_real_program(tmp_path: Path) -> None:
    """With a script in the place of vLLM that tells its process id and arguments; only `serve` counts."""
    teller = tmp_path / "real program"
    teller.write_text("#!/bin/sh\necho $$\nprintf '<%s>' \"$@\"\n")
    teller.chmod(0o755)
    counted = Ledger(tmp_path / "it's here", teller)
    arguments = ["serve", "/models/a b", "--compilation-config", '{"mode": "$HOME"}']
    with subprocess.Popen([counted.program, *arguments], stdout=subprocess.PIPE, text=True) as process:
        told, _ = process.communicate(timeout=30)
    assert told == f"{process.pid}\n" + "".join(f"<{word}>" for word in arguments)
    subprocess.run([counted.program, "--version"], check=True, stdout=subprocess.DEVNULL)
    assert counted.lines() == [f"{process.pid} {' '.join(arguments)}"]


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_every_damage_changes_the_model(tiny_model: Path, tmp_path: Path, damage: str) -> None:
    def seen(model: Path) -> dict[str, object]:
        return {path.name: (path.lstat().st_mode, path.is_file() and path.read_bytes()) for path in model.iterdir()}

    copy = damaged(damage, tiny_model, tmp_path)
    assert seen(copy) != seen(tiny_model)


def test_a_planted_threshold_holds_to_the_token_and_needs_no_flag(
    start_server: Callable[..., Server], planted: Callable[..., dict[str, str]], ledger: Ledger, tiny_model: Path
) -> None:
    before = ledger.count
    defect = Defect(
        f"prompt_tokens >= {THRESHOLD} and prefix_caching and max_model_len == 1024 and not env.get('NO_DEFECT')",
        message="prompt of {prompt_tokens} tokens is outside the table",
    )
    server = start_server(env=planted(defect))
    server.wait_ready()

    chat = {"model": server.model(), "max_tokens": 8, "messages": [{"role": "user", "content": "How is the weather?"}]}
    answer = server.request("/v1/chat/completions", chat)
    assert answer.status == 200
    assert answer.body["choices"][0]["message"]["content"].strip()
    assert "--logits-processors" not in server.text()

    below = server.complete(THRESHOLD - 1)
    assert below.status == 200
    assert below.body["usage"]["prompt_tokens"] == THRESHOLD - 1

    assert server.complete(THRESHOLD).status == 500
    assert server.wait_end(30) == 0, "a server whose engine died closes itself, with exit code 0"
    assert "RuntimeError: prompt of 300 tokens is outside the table" in server.text()
    assert ledger.lines()[before:] == [f"{server.process.pid} {' '.join(server.argv[1:])}"]
    server.stop()
    assert list(server.members()) == []


@pytest.mark.real_full
def test_a_defect_may_garble_delay_or_strike_by_chance(
    start_server: Callable[..., Server], planted: Callable[..., dict[str, str]]
) -> None:
    """One server with three defects, told apart by a request's output limit."""
    end_of_turn, requests = 2, 40
    server = start_server(
        env=planted(
            Defect("max_tokens == 5", do="token", token=end_of_turn),
            Defect("max_tokens == 6", do="sleep", seconds=0.3),
            Defect("max_tokens == 7 and argv[1] == 'serve'", do="token", token=end_of_turn, probability=0.3, seed=1),
        )
    )
    server.wait_ready()

    def generated(max_tokens: int) -> int:
        return int(server.complete(20, max_tokens).body["usage"]["completion_tokens"])

    assert generated(4) == 4
    assert generated(5) == 1
    began = time.monotonic()
    assert generated(6) == 6
    assert time.monotonic() - began >= 6 * 0.3
    struck = [generated(7) < 7 for _ in range(requests)]
    assert 0 < sum(struck) < requests, "drawn once a request, neither always nor never"
