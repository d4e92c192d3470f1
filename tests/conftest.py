"""What every test run needs, however it was started."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Signals as on a terminal.

    A run in the background of a script, or under nohup, inherits ignored signals and hands them on to every process
    that the tests start, so that no interrupt would reach them.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
