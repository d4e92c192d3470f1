"""What signals do: the first one ends a command tidily, a second Ctrl-C at once.

`kill` and a broken connection end a command as Ctrl-C does. Only Ctrl-C counts as impatience: a closing terminal sends
its hang-up twice.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from repro.errors import EXIT_INTERRUPTED

_SHOW_CURSOR = "\x1b[?25h"  # the ladder hides it
_LEFT = (
    "\nrepro: quit at once; a server that was started may still run and hold its GPUs\n"
    "  `repro clean`, or any next command that starts servers here, ends it; `repro bisect --resume` goes on\n"
)


class Interrupts:
    """The handler of all three signals."""

    def __init__(self) -> None:
        self._interrupted = False

    def install(self) -> None:
        signal.signal(signal.SIGINT, self)
        signal.signal(signal.SIGTERM, self)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # not under nohup, which wants it to go on
            signal.signal(signal.SIGHUP, self)

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            _quit()


def _quit() -> NoReturn:
    """Without unwinding, which would stop the server after all."""
    text = (_SHOW_CURSOR if os.isatty(2) else "") + _LEFT
    sys.stdout.flush()
    os.write(2, text.encode())
    os._exit(EXIT_INTERRUPTED)
