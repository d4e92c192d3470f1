"""Which faults the stand-in plays, and when: the file that REPRO_SIMULATOR_FAULTS names (TOML, or JSON by its ending).

Top-level keys
    seed            whole number, default 0. With `probability`, decides which requests are hit: always the same ones.
    launch_counter  path of a small file, relative to the fault file. Each launch adds one to it and the number enters
                    the draw, so that a flaky fault hits other requests after a restart; else every launch is alike.
    fault           list of tables ([[fault]] in TOML); the first one that holds is played, in the file's order.

Keys of a fault
    stage        required. A stage of repro.domain.Stage. `serving` is asked at every chat or completion request; every
                 other stage is asked once, when the start reaches it.
    family       required. A family of repro.domain.Family that `fault_text.TEXTS` has words for. It chooses log lines,
                 traceback, process, HTTP status and what happens by default.
    when         default "true". A condition (see repro.simulator.condition), such as
                 `prefix_caching and input_tokens >= 32768`, `flag('--kv-cache-dtype') == 'fp8'` or
                 `env('NCCL_P2P_DISABLE') == '1'`. A start-up stage knows no request. With several nodes
                 `node_rank == 1` chooses one; requests are rank 0's.
    do           default by family. While starting:
                   error, crash        print the failure and end with 1 (`arg_error`: 2)
                   kill                end by SIGKILL without a word
                   hang                stop for ever and ignore SIGTERM
                   slow                go on after `delay_s`
                 While serving:
                   error               answer `status` and live on
                   crash               log the failure; the engine is dead: 500, /health 503 once, end with 0
                   kill                the same without a cause in the log
                   hang                never answer, ignore SIGTERM
                   slow                answer after `delay_s`
                   empty               200 without any text
                   leaked_markers      200 with K3 channel markers in the text
                   endless             200 with one token repeated up to the limit
                   broken_tool_call    200 with the tool call left as text
    probability  0 to 1, default 1. The share of the requests (or launches) for which `when` holds that are hit.
    delay_s      seconds before the fault shows, default 0 (`slow`: 1).
    message      replaces the root line's message.
    status       HTTP status of `error` while serving, default 500 (`context_length`, `arg_error`: 400).
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.simulator.arguments import destination_of
from repro.simulator.condition import REQUEST_FACTS, Condition, ConditionError, Facts
from repro.simulator.fault_text import TEXTS, moment_of

STARTING_DEEDS = ("error", "crash", "kill", "hang", "slow")
OUTPUT_DEEDS = ("empty", "leaked_markers", "endless", "broken_tool_call")
_TOP_KEYS = {"seed", "launch_counter", "fault"}
_FAULT_KEYS = {"stage", "family", "when", "do", "probability", "delay_s", "message", "status"}


class FaultFileError(ValueError):
    """The fault file cannot be used; the text names file, fault and key, and what would be right."""


@dataclass(frozen=True)
class Fault:
    """One entry of the file, checked."""

    stage: Stage
    family: Family
    when: Condition
    do: str
    probability: float = 1.0
    delay_s: float = 0.0
    message: str | None = None
    status: int = 500


@dataclass(frozen=True)
class FaultPlan:
    """All faults of a launch with the two numbers that make their chance repeatable."""

    faults: tuple[Fault, ...] = ()
    seed: int = 0
    launch: int = 0

    @property
    def asks_concurrency(self) -> bool:
        """Whether a request must wait to see how many come with it."""
        return any("concurrency" in fault.when.names for fault in self.faults)

    def at_moment(self, moment: str, facts: Facts) -> Fault | None:
        """The first fault that is to show at this moment of the start (see `fault_text.MOMENTS`)."""
        for position, fault in enumerate(self.faults):
            starting = fault.stage is not Stage.SERVING and moment_of(fault.stage, fault.family) == moment
            if starting and fault.when.holds(facts) and self._drawn(position, fault, 0):
                return fault
        return None

    def at_request(self, number: int, facts: Facts) -> Fault | None:
        """The first fault that is to hit a request; `number` is the request's, from 1."""
        for position, fault in enumerate(self.faults):
            if fault.stage is Stage.SERVING and fault.when.holds(facts) and self._drawn(position, fault, number):
                return fault
        return None

    def _drawn(self, position: int, fault: Fault, number: int) -> bool:
        if fault.probability >= 1.0:
            return True
        text = f"{self.seed}/{self.launch}/{position}/{number}"
        draw = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64
        return draw < fault.probability


def load(path: Path, launch_facts: Facts) -> FaultPlan:
    """Read and check a fault file; raises FaultFileError. Adds one to its launch counter, if it names one."""
    data = _read(path)
    _only_known(data, _TOP_KEYS, f"{path}")
    entries = data.get("fault", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise FaultFileError(f"{path}: `fault` must be a list of tables; write each as [[fault]]")
    faults = tuple(_fault(entry, f"{path}: fault {n}", launch_facts) for n, entry in enumerate(entries, 1))
    seed = _number(data, "seed", 0, f"{path}")
    return FaultPlan(faults, int(seed), _count_launch(path, data.get("launch_counter")))


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FaultFileError(f"{path}: cannot be read: {error}") from None
    try:
        data = json.loads(text) if path.suffix == ".json" else _toml(text)
    except ValueError as error:
        raise FaultFileError(f"{path}: not valid {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from None
    if not isinstance(data, dict):
        raise FaultFileError(f"{path}: the top level must be a table with `fault` in it")
    return data


def _toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def _fault(entry: dict[str, Any], where: str, launch_facts: Facts) -> Fault:
    _only_known(entry, _FAULT_KEYS, where)
    stage = Stage(_choice(entry, "stage", [s.value for s in Stage if s is not Stage.NONE], where))
    family = Family(_choice(entry, "family", [f.value for f in TEXTS], where))
    serving = stage is Stage.SERVING
    deeds = STARTING_DEEDS + (OUTPUT_DEEDS if serving else ())
    text = TEXTS[family]
    default = text.serving_deed if serving else text.starting_deed
    do = _choice({"do": default, **entry}, "do", list(deeds), where)
    probability = _number(entry, "probability", 1.0, where)
    if not 0 <= probability <= 1:
        raise FaultFileError(f"{where}: `probability` must lie between 0 and 1, not {probability}")
    message = entry.get("message")
    if message is not None and not isinstance(message, str):
        raise FaultFileError(f"{where}: `message` must be text")
    return Fault(
        stage=stage,
        family=family,
        when=_condition(entry.get("when", "true"), where, serving, launch_facts),
        do=do,
        probability=probability,
        delay_s=_number(entry, "delay_s", 1.0 if do == "slow" else 0.0, where),
        message=message,
        status=int(_number(entry, "status", text.status, where)),
    )


def _condition(text: Any, where: str, serving: bool, launch_facts: Facts) -> Condition:
    if not isinstance(text, str):
        raise FaultFileError(f'{where}: `when` must be text, such as "input_tokens >= 1024"')
    try:
        condition = Condition(text)
        trial = {**launch_facts.names, **(EMPTY_REQUEST if serving else {})}
        condition.holds(Facts(trial, launch_facts.flag, launch_facts.env))
    except ConditionError as error:
        raise FaultFileError(f"{where}: `when`: {error}") from None
    if not serving and condition.names & REQUEST_FACTS:
        names = ", ".join(sorted(condition.names & REQUEST_FACTS))
        raise FaultFileError(f'{where}: `when` asks for {names}, which only stage "serving" knows')
    for flag in sorted(condition.flags):
        if destination_of(flag) is None:
            raise FaultFileError(f"{where}: `when` asks for {flag}, which is no flag of vllm serve")
    return condition


# A request of the right types, to find type mistakes in conditions when the file is read.
EMPTY_REQUEST: dict[str, Any] = {
    **dict.fromkeys(("input_tokens", "max_tokens", "output_tokens", "cached_tokens", "served_requests"), 0),
    **dict.fromkeys(("stream", "has_tools", "tool_calls"), False),
    "concurrency": 1,
    "soak_seconds": 0.0,
    "temperature": 1.0,
    "text": "",
    "reasoning_effort": "",
}


def _choice(entry: dict[str, Any], key: str, allowed: list[str], where: str) -> str:
    value = entry.get(key)
    if value not in allowed:
        said = f"`{key}` is missing" if value is None else f"`{key}` is {value!r}"
        raise FaultFileError(f"{where}: {said}; it must be one of {', '.join(allowed)}")
    return str(value)


def _number(entry: dict[str, Any], key: str, default: float, where: str) -> float:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10**12:
        raise FaultFileError(f"{where}: `{key}` must be a number from 0 on, not {value!r}")
    return value


def _only_known(entry: dict[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise FaultFileError(f"{where}: unknown key `{unknown[0]}`; known are {', '.join(sorted(known))}")


def _count_launch(path: Path, counter: Any) -> int:
    if counter is None:
        return 0
    if not isinstance(counter, str):
        raise FaultFileError(f"{path}: `launch_counter` must be the path of a file")
    file = path.parent / counter
    try:
        number = int(file.read_text(encoding="utf-8")) + 1 if file.exists() else 1
        file.write_text(f"{number}\n", encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FaultFileError(f"{path}: `launch_counter` {file} cannot be used: {error}") from None
    return number
