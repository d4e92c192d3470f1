"""Both ends first: production must fail (its signatures are the target) and the minimal configuration must pass.

Production goes first although the rule names the minimal end first: the minimal end's server then stays up for the
ladder's request variables, and a production that passes ends the search before anything else was launched.
"""

from __future__ import annotations

from collections.abc import Generator

from repro.bisect.ledger import Ledger
from repro.domain.outcome import Unresolved
from repro.domain.trial import Answer, Ask, Fresh, Purpose, Reply
from repro.domain.variable import Configuration

# Five tries where the server is still up and a try costs a request, else two: once is not reproduced.
CHEAP_TRIES = 5
DEAR_TRIES = 2


def try_end(
    ledger: Ledger, configuration: Configuration, parent: str | None, purpose: Purpose
) -> Generator[Ask, Reply, tuple[Answer, ...]]:
    """All answers of one end: first on a fresh server, then again as often as that is cheap."""
    first = yield from ledger.repeat(configuration, parent, purpose, f"{purpose}, fresh server", Fresh.REQUIRED)
    if isinstance(first.outcome, Unresolved):
        return (first,)
    again = ledger.first_id[configuration]
    if first.server is not None and first.server.alive:
        pairs = [(configuration, again)] * (CHEAP_TRIES - 1)
        more = yield from ledger.ask(pairs, purpose, f"{purpose}, {CHEAP_TRIES - 1} times more on its warm server")
    else:
        pairs = [(configuration, again)] * (DEAR_TRIES - 1)
        more = yield from ledger.ask(pairs, purpose, f"{purpose} again, on a fresh server", Fresh.REQUIRED)
    return (first, *more)
