"""Plants a defect into the installed engine, without a flag: as a distribution on the server's PYTHONPATH.

The choice: vLLM loads every logits processor that a distribution offers in the group `vllm.logits_processors`. A folder
with a module and a dist-info is such a distribution, so the server's command stays production's to the letter and the
defect belongs to the installation, which is what users have.

    environment.update(plant(tmp_path / "defect", [Defect(when="prompt_tokens >= 300 and prefix_caching")]))

`when` is an expression over: prompt_tokens, output_tokens (so far), max_tokens, temperature of each running request;
batch (running requests), served_requests (begun since the start); prefix_caching and any argument of the engine by its
name (kv_cache_dtype, max_num_seqs, max_num_batched_tokens, block_size, max_model_len, tensor_parallel_size, ...);
`env`, the server's environment (`env.get("NAME") == "1"`), and `argv`, its command, for flags that the engine never
sees. At the start only arguments, `env` and `argv` are known.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

MODULE = "repro_planted"
METADATA = "Metadata-Version: 2.1\nName: repro-planted\nVersion: 1.0\n"
ENTRY_POINTS = f"[vllm.logits_processors]\nplanted = {MODULE}:PlantedDefect\n"


@dataclass(frozen=True)
class Defect:
    """One defect.

    `at` start (while the engine is built, before weights are loaded) or step (every step of every request).
    `do` raise (`exception`, a builtin's or dotted name, with `message`, in which `{prompt_tokens}` and the like are
    filled in), exit (with `code`), kill (SIGKILL to itself), sleep (`seconds` on each step), token (answers with
    `token` alone) or none. `probability` is drawn once a request (once a start); with a `seed` the draws of one server
    are always the same.
    """

    when: str = "True"
    at: Literal["start", "step"] = "step"
    do: Literal["raise", "exit", "kill", "sleep", "token", "none"] = "raise"
    exception: str = "RuntimeError"
    message: str = "planted defect: {when}"
    code: int = 1
    seconds: float = 0.0
    token: int = 0
    probability: float = 1.0
    seed: int | None = None


def plant(directory: Path, defects: Sequence[Defect]) -> dict[str, str]:
    """Writes the distribution into `directory`; returns what the server's environment needs on top."""
    for defect in defects:
        compile(defect.when, "<when>", "eval")
    info = directory / f"{MODULE}-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    shutil.copyfile(Path(__file__).with_name("planted.py"), directory / f"{MODULE}.py")
    described = [{**asdict(defect), "message": defect.message.replace("{when}", defect.when)} for defect in defects]
    (directory / "defects.json").write_text(json.dumps(described, indent=1) + "\n")
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{directory}{os.pathsep}{before}" if before else str(directory)}
