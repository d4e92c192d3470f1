"""The configuration in force, since defaults change between versions and an absent flag says nothing by itself.

What was asked for is the "non-default args" line; what holds is the engine's configuration line and, where a server
still answers, `vllm:cache_config_info` and `/version`. So a flag that nobody gave is recorded with its value in force.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from repro.domain.command import parse_non_default_args
from repro.domain.command.flag_names import canonical, spec_of
from repro.domain.command.printed_values import Unreadable, read_printed
from repro.domain.fingerprint import Fact
from repro.machine.containers import argv_of
from repro.machine.processes import describe
from repro.redact.redactor import Redactor
from repro.snapshot.collector import Context, attempt
from repro.snapshot.log import NO_LOG
from repro.snapshot.log_source import lines_of

# The configuration is printed while starting; a server that has served for a week need not be read to the end.
_READ_AT_MOST = 64 << 20  # bytes
_ANSWER_S = 3.0
_ENGINE = re.compile(r"Initializing a V[01] LLM engine \(v(?P<version>[^)]+)\) with config: (?P<config>.*)")
_DERIVED: Mapping[str, re.Pattern[str]] = {
    "kv_cache_tokens": re.compile(r"(?:GPU|CPU|TPU|XPU)? ?KV cache size: ([\d,]+) tokens"),
    "max_concurrency": re.compile(r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x"),
    "max_model_len": re.compile(r"Using max model len (\d+)"),
    "attention_block": re.compile(r"Setting attention block size to (\d+) tokens"),
    "architecture": re.compile(r"Resolved architecture: (\S+)"),
    "attention_backend": re.compile(r"Using (\S+) (?:attention )?backend"),
    "nccl": re.compile(r"vLLM is using nccl==(\S+)"),
    "mamba_cache_mode": re.compile(r"Mamba cache mode is set to '(\w+)'"),
}
_CACHE_INFO = re.compile(r"^vllm:cache_config_info\{(?P<labels>.*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# The engine's names that are not the flag's.
_FLAG_OF = {"max_seq_len": "--max-model-len", "cache_dtype": "--kv-cache-dtype"}


class ConfigurationCollector:
    """Reads the beginning of the log and asks the server on its own ports; what is not told is left out."""

    name = "configuration"
    deadline = 60.0
    fields = ("arguments", "engine", "engine_version", "derived", "cache", "server_version", "defaults")

    def collect(self, context: Context) -> Mapping[str, Fact]:
        """`arguments`, `defaults`: {flag: value}; `engine`, `cache`: {name: value as printed}; `derived`: numbers."""
        reading = _Reading(context.redactor)
        facts: dict[str, Fact] = dict.fromkeys(self.fields, Fact.unavailable(context.log_hint or NO_LOG))
        if context.log is not None:
            told = attempt(lambda: reading.read(lines_of(context.log.chunks())) if context.log else None)
            facts |= reading.facts() if told.known else dict.fromkeys(facts, told)
        facts["cache"], facts["server_version"] = _of_server(context)
        return {**facts, "defaults": _defaults(facts)}


class _Reading:
    """The first lines of each kind; the last launch of a log with several counts, as it is the one that failed."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self.arguments: dict[str, Any] | None = None
        self.engine: dict[str, Any] | None = None
        self.version: str | None = None
        self.derived: dict[str, str] = {}

    def read(self, lines: Iterator[bytes]) -> None:
        read = 0
        for raw in lines:
            read += len(raw)
            if read > _READ_AT_MOST:
                return
            line = raw.decode("utf-8", "replace")
            if "args: " in line and (command := parse_non_default_args(line)) is not None:
                self.arguments = {flag.name: _plain(self._redactor, flag.name, flag.value) for flag in command.flags}
                if command.model is not None:
                    self.arguments["model"] = self._redactor.text(command.model)
                self.engine, self.version, self.derived = None, None, {}
            elif "LLM engine (v" in line and (match := _ENGINE.search(line)):
                self.version = match["version"]
                self.engine = self._redactor.json(engine_config(match["config"]))
            else:
                self._derive(line)

    def _derive(self, line: str) -> None:
        for name, pattern in _DERIVED.items():
            if name not in self.derived and (match := pattern.search(line)):
                self.derived[name] = match[1].replace(",", "")

    def facts(self) -> Mapping[str, Fact]:
        def fact(value: Any, line: str) -> Fact:
            absent = f"the log has no {line}; it may have begun earlier, or the server ended before it"
            return Fact.measured(value) if value else Fact.unavailable(absent)

        return {
            "arguments": fact(self.arguments, '"non-default args" line'),
            "engine": fact(self.engine, '"Initializing a V1 LLM engine" line'),
            "engine_version": fact(self.version, '"Initializing a V1 LLM engine" line'),
            "derived": fact(self.derived, "line about length, cache or backend"),
        }


def engine_config(text: str) -> dict[str, Any]:
    """`name=value, name=Object(a=1), …` of the engine's line, split outside brackets and quotes.

    A value that is an object stays as the text that was printed.
    """
    found: dict[str, Any] = {}
    for part in _parts(text):
        name, equals, value = part.partition("=")
        if equals and name.strip().isidentifier():
            found[name.strip()] = _printed(value.strip())
    return found


def _parts(text: str) -> Iterator[str]:
    depth, quote, begin = 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[at - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _printed(text: str) -> Any:
    try:
        value = read_printed(text)
    except Unreadable:
        return text
    return value if value is None or isinstance(value, str | int | float | bool) else text


def _plain(redactor: Redactor, name: str, value: Any) -> Any:
    if isinstance(value, bool) or value is None:
        return value
    words = [value] if isinstance(value, str) else list(value)
    masked = list(redactor.argv([name, *words])[1:])
    return masked[0] if isinstance(value, str) else masked


def _defaults(facts: Mapping[str, Fact]) -> Fact:
    """Flags that nobody gave, with the value that holds all the same."""
    if not facts["arguments"].known:
        return Fact.unavailable("what was given is not known, so neither is what was left out")
    labels = {name: _printed(value) for name, value in (facts["cache"].value or {}).items()}
    in_force = {**(facts["engine"].value or {}), **labels}
    if not in_force:
        return Fact.unavailable("neither the log nor a server tells what is in force")
    given = facts["arguments"].value
    flags = {_FLAG_OF.get(name, canonical(name)): value for name, value in in_force.items() if name[0] != "_"}
    known = {flag: value for flag, value in sorted(flags.items()) if spec_of(flag) is not None}
    return Fact.measured({flag: value for flag, value in known.items() if flag not in given})


def _of_server(context: Context) -> tuple[Fact, Fact]:
    """`vllm:cache_config_info` and `/version`, from whichever of the server's ports answers."""
    fetch = context.fetch
    if fetch is None:
        return (Fact.unavailable("no server is asked in this capture"),) * 2
    reason = Fact.unavailable("no port of the server is known")
    for base in server_addresses(context):
        version = attempt(lambda base=base: json.loads(fetch(f"{base}/version", _ANSWER_S))["version"], base)  # type: ignore[misc]
        if version.known:
            return attempt(lambda base=base: _cache_info(fetch(f"{base}/metrics", _ANSWER_S)), base), version  # type: ignore[misc]
        reason = version
    return reason, reason


def server_addresses(context: Context) -> list[str]:
    """Where the server may answer: the ports it listens on, those published for its container."""
    found = []
    if context.pid is not None:
        found += [f"http://127.0.0.1:{port}" for port in describe(context.pid).ports or ()]
    if context.container is not None:
        found += _container_addresses(context.container)
    return list(dict.fromkeys(found))


def _container_addresses(container: Mapping[str, Any]) -> list[str]:
    """Published ports on loopback, and vLLM's own port at the container's address in its network."""
    settings = container.get("NetworkSettings") or {}
    published = [
        f"http://127.0.0.1:{binding['HostPort']}"
        for bindings in (settings.get("Ports") or {}).values()
        for binding in bindings or ()
        if binding.get("HostPort")
    ]
    inner = re.search(r"--port[= ](\d+)", " ".join(argv_of(container)))
    networks = (settings.get("Networks") or {}).values()
    port = inner[1] if inner else "8000"
    return published + [f"http://{net['IPAddress']}:{port}" for net in networks if net.get("IPAddress")]


def _cache_info(metrics: str) -> dict[str, str]:
    match = _CACHE_INFO.search(metrics)
    if match is None:
        raise LookupError("the server exports no vllm:cache_config_info")
    return {name: value for name, value in _LABEL.findall(match["labels"]) if name != "engine"}
