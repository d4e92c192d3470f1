"""`python -m repro.simulator serve MODEL [flags of vllm serve]`."""

from __future__ import annotations

import os
import sys

from repro.simulator.arguments import parse
from repro.simulator.launch import run

_USAGE = "usage: python -m repro.simulator serve MODEL [flags of vllm serve]\n"


def main(argv: list[str]) -> int:
    """Run the stand-in with these arguments; returns the exit code."""
    if argv[:1] != ["serve"]:
        sys.stderr.write(_USAGE)
        return 2
    return run(parse(argv[1:]), os.environ)


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Requests that hang must not keep the process: their threads are left where they are.
    os._exit(code)
