"""The kernel's messages about GPUs and killed processes: an Xid or the OOM killer explains what no log of vLLM can.

Read without waiting from `/dev/kmsg`, which ends where the messages end; where that may not be read, `dmesg` is asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from repro.domain.fingerprint import Fact
from repro.errors import MissingProgram
from repro.machine.subprocesses import run
from repro.snapshot.collector import Context, attempt

_TELLING = re.compile(
    r"NVRM|\bXid\b|nvidia|Out of memory|oom-kill|Killed process|invoked oom-killer|mlx5|amdgpu|segfault"
)
_KMSG = re.compile(r"^(?P<level>\d+),\d+,(?P<micro>\d+),[^;]*;(?P<text>.*)")
_DMESG = re.compile(r"^\[\s*(?P<seconds>\d+\.\d+)\]\s?(?P<text>.*)")
_XID = re.compile(r"Xid \((?P<device>[^)]*)\): (?P<number>\d+)")
_MOST = 200  # messages kept, the last ones
_RECORD = 8192  # bytes; the kernel gives one record a read
_NEEDS = "needs root or CAP_SYSLOG (sysctl kernel.dmesg_restrict)"
_DMESG_S = 5.0


class KernelCollector:
    """Only telling messages are kept."""

    name = "kernel"
    deadline = 10.0
    fields = ("messages", "xids", "oom_kills")

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`messages`: [{time, text}], Unix seconds; `xids`: [{time, device, number}]; `oom_kills`: [{time, text}]."""
        found, how = _read(context.root)
        kept = [{"time": at, "text": context.redactor.text(text)} for at, text in found if _TELLING.search(text)]
        xids = [
            {"time": message["time"], "device": match["device"], "number": int(match["number"])}
            for message in kept
            if (match := _XID.search(str(message["text"])))
        ]
        killed = [message for message in kept if "Killed process" in str(message["text"])]
        return {
            "messages": Fact.measured(kept[-_MOST:], how),
            "xids": Fact.measured(xids[-_MOST:], how),
            "oom_kills": Fact.measured(killed[-_MOST:], how),
        }


def _read(root: Path) -> tuple[list[tuple[float, str]], str]:
    boot = attempt(psutil.boot_time).value or 0.0
    try:
        return [(boot + seconds, text) for seconds, text in _from_kmsg(root / "dev/kmsg")], "/dev/kmsg"
    except OSError as error:
        reason = error
    try:
        done = run(["dmesg"], _DMESG_S)
    except MissingProgram:
        raise LookupError(f"/dev/kmsg cannot be read ({reason.strerror}) and there is no dmesg; it {_NEEDS}") from None
    if not done.succeeded:
        raise LookupError(f"neither /dev/kmsg nor dmesg may be read; it {_NEEDS}")
    return [(boot + seconds, text) for seconds, text in _from_dmesg(done.stdout)], "dmesg"


def _from_kmsg(path: Path) -> Iterator[tuple[float, str]]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(descriptor, _RECORD)
            except BlockingIOError:  # all read
                return
            except BrokenPipeError:  # messages were overwritten meanwhile; the next read goes on behind them
                continue
            if not record:
                return
            for line in record.decode("utf-8", "replace").splitlines():
                if match := _KMSG.match(line):
                    yield int(match["micro"]) / 1e6, match["text"]
    finally:
        os.close(descriptor)


def _from_dmesg(text: str) -> Iterator[tuple[float, str]]:
    for line in text.splitlines():
        if match := _DMESG.match(line):
            yield float(match["seconds"]), match["text"]
