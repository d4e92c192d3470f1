"""Talks to a running server: builds requests of an exact length, sends them, judges answers, reads metrics."""
