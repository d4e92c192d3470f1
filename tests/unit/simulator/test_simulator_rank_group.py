"""Ranks in one process: they meet, a stranger at the door changes nothing, a good-bye is no loss."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest

from repro.simulator.arguments import parse
from repro.simulator.rank_group import NobodyCame, RankGroup, is_inside

PATIENCE_S = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def all_at_once(deeds: list[Callable[[], None]]) -> None:
    with ThreadPoolExecutor(len(deeds)) as pool:
        for done in [pool.submit(deed) for deed in deeds]:
            done.result(PATIENCE_S)


def knock(port: int, words: bytes) -> None:
    """As a stranger, once somebody listens; returns when the door was closed again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stranger:
                stranger.sendall(words)
                stranger.recv(1)
                return
        except ConnectionRefusedError:
            assert time.monotonic() < deadline


def test_three_ranks_meet_although_strangers_knock() -> None:
    port = free_port()
    groups = [RankGroup("127.0.0.1", port, rank, 3) for rank in range(3)]
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(groups[0].join)
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"rank 3\n", b"rank 0\n", b"rank one\n"):
            knock(port, words)
        all_at_once([groups[1].join, groups[2].join])
        first.result(PATIENCE_S)
    all_at_once([group.meet for group in groups])
    assert all(group.joined for group in groups)
    heard: SimpleQueue[str] = SimpleQueue()
    groups[0].watch(heard.put)
    groups[1].farewell()
    del groups[2]  # its connection ends with it
    assert heard.get(timeout=PATIENCE_S).startswith("[127.0.0.1]:")
    assert heard.empty()


def test_who_waits_in_vain_says_for_whom() -> None:
    with pytest.raises(NobodyCame, match="1/2 clients joined"):
        RankGroup("127.0.0.1", free_port(), 0, 2, patience_s=0.05).join()
    with pytest.raises(NobodyCame, match=r"no answer from 127\.0\.0\.1"):
        RankGroup("127.0.0.1", free_port(), 1, 2, patience_s=0.05).join()


def test_one_node_waits_for_nobody() -> None:
    group = RankGroup.of(parse(["m", "--master-addr", "8.8.8.8"]))
    group.join()
    group.meet()
    assert group.joined


@pytest.mark.parametrize(
    ("address", "inside"),
    [("127.0.0.1", True), ("10.99.0.1", True), ("fd00::1", True), ("8.8.8.8", False), ("0.0.0.0", False), ("x", False)],
)
def test_ranks_meet_only_inside(address: str, inside: bool) -> None:
    assert is_inside(address) is inside


def test_a_public_master_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--master-addr 8\.8\.8\.8 is neither loopback nor private"):
        RankGroup.of(parse(["m", "--nnodes", "2", "--master-addr", "8.8.8.8"]))
