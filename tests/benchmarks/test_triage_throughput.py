"""Triage reads a log at a tenth, better a fifth, of the speed at which ripgrep only counts lines with the same texts.

A ratio of processor time in one run on one file (both use one core), never an absolute time. The file is 64 MB, 1 GB
under `make bench`; REPRO_BENCH_MB sets another size. It holds what fills real logs: NCCL_DEBUG=TRACE, access lines,
statistics, whole prompts, debug lines, progress bars.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from repro.triage import shipped_table

MEGABYTES = int(os.environ.get("REPRO_BENCH_MB") or (1024 if os.environ.get("MAKELEVEL") else 64))
PIECE = 32  # megabytes that differ; a longer file repeats them
LEAST, AIM = 0.1, 0.2
MOST_MEMORY = 100 << 20
ROUNDS = 3
WORDS = (
    "the model engine request tokens scheduler worker block cache of and to in step ready run message function call "
    "user answer question data list value time number please write explain python code requires unsupported"
).split()
HEAD = (
    "(APIServer pid=1) INFO 12-01 13:35:46 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0\n"
    "(APIServer pid=1) INFO 12-01 13:35:50 [model.py:733] Resolved architecture: Qwen3ForCausalLM\n"
    "INFO:     Application startup complete.\n"
)
TAIL = "(EngineCore pid=7) ERROR 12-01 15:00:00 [core.py:9] torch.OutOfMemoryError: CUDA out of memory.\n"
READ = """
import json, re, sys, time
from pathlib import Path
from repro.triage import triage_file
start, spent = time.perf_counter(), time.process_time()
answer = triage_file(Path(sys.argv[1]))
seconds, processor = time.perf_counter() - start, time.process_time() - spent
print(json.dumps({"seconds": seconds, "processor": processor, "family": answer.family, "root": answer.root_line,
                  "memory": int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024}))
"""


def children() -> float:
    """Processor seconds of all children so far; a busy machine spoils the clock on the wall, and not them."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def lines(chance: random.Random) -> Iterator[str]:
    n, number = chance.randrange, 0
    while True:
        number += 1
        kind = chance.random()
        clock = f"12-01 13:{n(60):02d}:{n(60):02d}"
        if kind < 0.45:
            yield (
                f"node{n(8)}:{n(9999)}:{n(9999)} [{n(8)}] NCCL TRACE enqueue.cc:{n(999)} AllReduce: opCount {number:x} "
                f"sendbuff 0x{n(1 << 48):x} recvbuff 0x{n(1 << 48):x} count {n(1 << 20)} datatype 9 op 0 root 0"
            )
        elif kind < 0.6:
            yield f"node{n(8)}:{n(9999)}:{n(9999)} [{n(8)}] NCCL INFO Channel {n(32):02d}/0 : {n(8)}[{n(8)}] via P2P"
        elif kind < 0.75:
            yield f'(APIServer pid=1) INFO:     10.0.0.{n(256)}:{n(65535)} - "POST /v1/completions HTTP/1.1" 200 OK'
        elif kind < 0.82:
            yield (
                f"(APIServer pid=1) INFO {clock} [loggers.py:271] Engine 000: Avg prompt throughput: {n(9999)}.{n(9)} "
                f"tokens/s, Avg generation throughput: {n(999)}.{n(9)} tokens/s, Running: {n(64)} reqs, Waiting: 0 reqs"
            )
        elif kind < 0.9:
            yield (
                f"(APIServer pid=1) INFO {clock} [logger.py:40] Received request chatcmpl-{n(1 << 60):x}: prompt: "
                f"'{' '.join(chance.choices(WORDS[:-2], k=n(5, 60)))}', params: SamplingParams(temperature=0.{n(99)})"
            )
        elif kind < 0.96:
            words = " ".join(chance.choices(WORDS, k=n(3, 20)))
            yield f"(EngineCore pid=7) DEBUG {clock} [core.py:{n(999)}] {words} {n(1 << 60):x}"
        else:
            yield "\r".join(f"Loading shards: {i}% Completed | {i}/100 [00:{i:02d}<01:00]" for i in range(n(1, 6)))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    parts, size = [], 0
    for line in lines(random.Random(7)):
        parts.append(line)
        size += len(line) + 1
        if size >= min(PIECE, MEGABYTES) << 20:
            break
    piece = ("\n".join(parts) + "\n").encode()
    path = tmp_path_factory.mktemp("throughput") / "big.log"
    with path.open("wb") as file:
        file.write(HEAD.encode())
        for _ in range(max(1, MEGABYTES // PIECE)):
            file.write(piece)
        file.write(TAIL.encode())
    yield path
    path.unlink()


@pytest.mark.timeout(1200)
def test_reading_is_at_least_a_tenth_as_fast_as_counting(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("ahocorasick_rs", reason="every line is read without it")
    ripgrep = shutil.which("rg") or pytest.skip("ripgrep (rg) is not installed: nothing to compare with")
    table = shipped_table()
    rows = (*table.markers, *table.patterns, *table.consequences, *table.harmless)
    texts = tmp_path / "texts"
    texts.write_text("\n".join(sorted({text for row in rows for text in row.any})) + "\n", encoding="utf-8")
    counted, read, memory = [], [], 0
    for _ in range(ROUNDS):
        start, spent = time.perf_counter(), children()
        subprocess.run([ripgrep, "-c", "-F", "-f", str(texts), str(log)], check=True, capture_output=True)
        counted.append((children() - spent, time.perf_counter() - start))
        done = subprocess.run([sys.executable, "-c", READ, str(log)], check=True, capture_output=True, text=True)
        told = json.loads(done.stdout)
        assert (told["family"], told["root"]) == ("oom_gpu", TAIL.rstrip("\n"))
        read.append((told["processor"], told["seconds"]))
        memory = max(memory, told["memory"])
    ratio, by_clock = (
        min(column) / min(other)
        for column, other in zip(zip(*counted, strict=True), zip(*read, strict=True), strict=True)
    )
    print(
        f"\ntriage: {MEGABYTES} MB, {ratio:.2f} of ripgrep's speed (least {LEAST}, aim {AIM}; by the clock on the wall "
        f"{by_clock:.2f}), {memory / (1 << 20):.0f} MB of memory"
    )
    assert ratio >= LEAST
    assert memory < MOST_MEMORY
