"""What counts as news in a log."""

from __future__ import annotations

from repro.runner.novelty import Novelty


def test_a_line_that_differs_in_digits_alone_is_no_news() -> None:
    novelty = Novelty()
    assert novelty.tells(b"try 1 at 10:00:01\n")
    assert not novelty.tells(b"try 2 at 10:00:02\ntry 3 at 10:00:03\n")
    assert novelty.tells(b"try 4 at 10:00:04\nconnected\n")
    assert not novelty.tells(b"connected\n")
    assert novelty.tells(b"frame #8: 0x7f52afe45305\n")
    assert not novelty.tells(b"frame #49: 0x5604b4d2a081\n")


def test_a_flood_is_looked_at_in_part_and_its_shapes_are_bounded() -> None:
    novelty = Novelty()
    assert novelty.tells(b"the same\n" * 100_000)
    assert not novelty.tells(b"the same\n" * 100_000)
    kinds = (f"{'x' * (n % 300)}{'y' * (n // 300)}\n".encode() for n in range(30_000))
    assert all(novelty.tells(kind) for kind in kinds), "forgotten in between, never refused"
