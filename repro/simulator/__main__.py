"""`python -m repro.simulator serve MODEL [flags of vllm serve]`: what `vllm serve` would do, in under half a second.

The environment says what is not vLLM's: REPRO_SIMULATOR_FAULTS names the fault file (see `faults`),
REPRO_SIMULATOR_STARTUP_SECONDS how long a start takes (default 0.3), REPRO_SIMULATOR_TOKEN_SECONDS how long the writing
of one token takes (default 0), REPRO_SIMULATOR_VERSION whose log it prints (0.9, 0.11,
0.15, 0.27 or 0.32, the default). VLLM_USE_RUST_FRONTEND=1 is vLLM's own and chooses the front end's words.
"""

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
