"""One rank of a tiny process group, run as `python -B -c SOURCE step rank world address port`; nothing of repro's.

`reach` only connects: rank 0 listens, the others come to it. `all_reduce` forms a group with the backend that vLLM
would take (NCCL where there is a GPU for each rank, else gloo) and adds a tensor up. One JSON object behind a mark.
"""

from __future__ import annotations

import importlib
import json
import signal
import socket
import sys
import time
from datetime import timedelta
from typing import Any

MARK = "repro-group:"
PATIENCE_S = {"reach": 45, "all_reduce": 150}  # PyTorch from a cold disk takes a minute of it
_MEET_S = 40


def reach(rank: int, world: int, address: str, port: int) -> dict[str, Any]:
    """Every rank meets rank 0 at the address and port where the group would meet."""
    end = time.monotonic() + _MEET_S
    if rank == 0:
        with socket.create_server((address, port)) as server:
            for _ in range(world - 1):
                server.settimeout(max(0.1, end - time.monotonic()))
                server.accept()[0].close()
        return {"ok": True}
    while True:
        try:
            socket.create_connection((address, port), max(0.1, end - time.monotonic())).close()
            return {"ok": True}
        except ConnectionRefusedError:  # rank 0 does not listen yet
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def all_reduce(rank: int, world: int, address: str, port: int) -> dict[str, Any]:
    """The sum over all ranks, checked."""
    try:
        torch: Any = importlib.import_module("torch")  # the server's; repro itself never needs it
    except ImportError as error:
        return {"ok": None, "error": f"PyTorch cannot be imported there: {error}"}
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= world
    backend = "nccl" if cuda else "gloo"
    told: dict[str, Any] = {"backend": backend}
    print(MARK + json.dumps(told), flush=True)
    device = f"cuda:{rank}" if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(
        backend,
        init_method=f"tcp://{address}:{port}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=_MEET_S),
    )
    total = torch.full((1024,), float(rank + 1), device=device)
    torch.distributed.all_reduce(total)
    right = bool((total == world * (world + 1) / 2).all().item())
    torch.distributed.destroy_process_group()
    return {**told, "ok": right, **({} if right else {"error": "the sum over the ranks is wrong"})}


def main() -> None:
    """The step that was asked for."""
    step, (rank, world), (address, port) = sys.argv[1], map(int, sys.argv[2:4]), sys.argv[4:6]
    signal.alarm(PATIENCE_S[step])
    try:
        told = (reach if step == "reach" else all_reduce)(rank, world, address, int(port))
    except Exception as error:
        told = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    print(MARK + json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
