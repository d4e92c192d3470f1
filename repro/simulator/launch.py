"""One launch of the stand-in, from the parsed command to the exit code: start, moments of failure, serving, end."""

from __future__ import annotations

import errno
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from repro.domain.failure import Family
from repro.domain.stage import Stage
from repro.simulator import failure_log, faults, startup_log
from repro.simulator.arguments import ServeArguments, destination_of
from repro.simulator.condition import Condition, Facts
from repro.simulator.dialect import Dialect, dialect_of
from repro.simulator.engine import Engine
from repro.simulator.failure_log import Wording
from repro.simulator.fault_text import MOMENTS
from repro.simulator.faults import Fault, FaultPlan
from repro.simulator.flag_table import TOOL_PARSERS
from repro.simulator.log import Log
from repro.simulator.rank_group import NobodyCame, PeerLost, RankGroup, is_inside
from repro.simulator.server import LoopbackServer, Serving

# From the engine's death to the end, unless /health was asked before; vLLM's own watchdog needs up to five seconds.
_DEATH_TO_END_S = 0.3
_LAST_ANSWERS_S = 1.0
# Ranks meet when the communication group is formed and, all of them loaded, before the cache is sized.
_MEETINGS = ("group", "cache")
_CLOSED = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer {}"
_TAKEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
    "port: {port}, useIpv6: false, code: -{code}, name: {name}, message: {text}"
)
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - named here in order not to be bound


@dataclass(frozen=True)
class Settings:
    """What the environment says to the stand-in itself."""

    fault_file: Path | None
    startup_seconds: float
    token_seconds: float
    dialect: Dialect

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Raises ValueError with a message for the user."""
        name = environment.get("REPRO_SIMULATOR_FAULTS")
        return cls(
            Path(name) if name else None,
            _seconds(environment, "REPRO_SIMULATOR_STARTUP_SECONDS", 0.3),
            _seconds(environment, "REPRO_SIMULATOR_TOKEN_SECONDS", 0.0),
            dialect_of(environment),
        )


def run(arguments: ServeArguments, environment: Mapping[str, str]) -> int:
    """Start, serve, end; returns the exit code."""
    try:
        settings = Settings.read(environment)
        group = RankGroup.of(arguments)
        host = _own_host(arguments)
        facts = _launch_facts(arguments, environment)
        plan = faults.load(settings.fault_file, facts) if settings.fault_file else FaultPlan()
    except ValueError as error:
        sys.stderr.write(f"repro.simulator: {error}\n")
        return 2
    stops: queue.SimpleQueue[str] = queue.SimpleQueue()
    log = Log(arguments, settings.dialect, rust_frontend=environment.get("VLLM_USE_RUST_FRONTEND") == "1")
    wording = Wording(
        arguments, startup_log.facts_of(arguments.model).architecture, startup_log.max_model_len_of(arguments)
    )
    return _Launch(arguments, settings, facts, plan, log, wording, stops, group).run(host)


def loopback_host(host: str | None) -> str:
    """The address to bind; ValueError for one that others could reach. `0.0.0.0` becomes 127.0.0.1 with a notice."""
    if host is None:
        return "127.0.0.1"
    if host in _EVERYWHERE:
        sys.stderr.write(f"repro.simulator: --host {host} is served on 127.0.0.1 only; this is a stand-in\n")
        return "127.0.0.1"
    if host in ("localhost", "::1") or host.startswith("127."):
        return "127.0.0.1" if host == "localhost" else host
    raise ValueError(f"--host {host} is not this machine's loopback; the stand-in serves 127.0.0.1 and ::1 only")


def _own_host(arguments: ServeArguments) -> str:
    """Loopback; as one of several nodes also the private address that the group's network gave it."""
    host = arguments.value("host")
    if int(arguments.value("nnodes")) > 1 and host and is_inside(host):
        return str(host)
    return loopback_host(host)


@dataclass(frozen=True)
class _Launch:
    arguments: ServeArguments
    settings: Settings
    facts: Facts
    plan: FaultPlan
    log: Log
    wording: Wording
    stops: queue.SimpleQueue[str]
    group: RankGroup

    def run(self, host: str) -> int:
        signal.signal(signal.SIGTERM, self._on_early_signal)
        signal.signal(signal.SIGINT, self._on_early_signal)
        server: LoopbackServer | None = None
        for moment in startup_log.walk(self.log, self.arguments):
            time.sleep(self.settings.startup_seconds / len(MOMENTS))
            fault = (self._meet() if moment in _MEETINGS else None) or self._fault_at(moment)
            if moment == "bind" and fault is None and not self.arguments.value("headless"):
                try:
                    server = LoopbackServer(host, int(self.arguments.value("port")))
                except OSError as error:
                    fault = _bind_fault(error)
            if fault is not None:
                return failure_log.print_start_failure(self.log, fault, self.wording)
        if server is None:
            return self._wait_headless()
        return self._serve(server)

    def _meet(self) -> Fault | None:
        """Wait for the other ranks; the failure if they do not come, or one of them went."""
        before = signal.signal(signal.SIGTERM, signal.SIG_IGN if not self.group.joined else self._on_early_signal)
        forming = not self.group.joined
        try:
            self.group.join()
            self.group.meet()
        except NobodyCame as error:
            return _fault(Stage.COMM_GROUP, Family.RENDEZVOUS_TIMEOUT, str(error))
        except PeerLost as error:
            return _fault(Stage.COMM_GROUP if forming else Stage.ENGINE_INIT, Family.GLOO, _CLOSED.format(error))
        except OSError as error:
            code = error.errno or 0
            port, name = self.arguments.value("master_port"), errno.errorcode.get(code, "UNKNOWN")
            told = _TAKEN.format(port=port, code=code, name=name, text=os.strerror(code).lower())
            return _fault(Stage.COMM_GROUP, Family.RENDEZVOUS_TIMEOUT, told)
        finally:
            signal.signal(signal.SIGTERM, before)
        return None

    def _fault_at(self, moment: str) -> Fault | None:
        """The failure to print at this moment, if any; what only delays, hangs or kills is done here."""
        fault = self.plan.at_moment(moment, self.facts) or _own_refusal(self.arguments, moment, self.facts)
        if fault is None:
            return None
        time.sleep(fault.delay_s)
        if fault.do == "slow":
            return None
        if fault.do == "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            threading.Event().wait()
        if fault.do == "kill":
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return fault

    def _serve(self, server: LoopbackServer) -> int:
        engine = Engine(self.arguments, self.plan, self.facts, self.log, self.wording)

        def on_lost(peer: str) -> None:
            engine.lost_peer = _fault(Stage.SERVING, Family.GLOO, _CLOSED.format(peer), do="crash")

        self.group.watch(on_lost)

        def on_signal(number: int, frame: FrameType | None) -> None:
            del number, frame
            if not engine.hung:
                self.stops.put("signal")

        shown = self.arguments.value("host") or "0.0.0.0"  # noqa: S104 - what vLLM prints; the socket is loopback
        startup_log.print_ready(self.log, shown, server.server_port, self.arguments.model)
        try:
            server.server_activate()
        except OSError as error:
            return failure_log.print_start_failure(self.log, _bind_fault(error), self.wording)
        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        threading.Thread(target=self._watch, args=(engine, server), daemon=True).start()
        # Listening before the line and answering after it: whoever acts on the line can connect, and no request's own
        # lines can stand before it.
        startup_log.print_complete(self.log)
        server.start(Serving(self.arguments, engine, self.log, self.settings.token_seconds, time.time()))
        if self.stops.get() == "signal":
            self.group.farewell()
            startup_log.print_shutdown(self.log)
            startup_log.print_http_end(self.log, finished=False)
        else:
            server.wait_idle(_LAST_ANSWERS_S)
            startup_log.print_http_end(self.log, finished=True)
            failure_log.print_engine_cleanup(self.log)
        return 0

    def _watch(self, engine: Engine, server: LoopbackServer) -> None:
        engine.dead.wait()
        server.death_told.wait(_DEATH_TO_END_S)
        self.stops.put("engine dead")

    def _wait_headless(self) -> int:
        signal.signal(signal.SIGTERM, lambda *_: self.stops.put("signal"))
        self.group.watch(self.stops.put)
        told = self.stops.get()
        if told != "signal":
            lost = _fault(Stage.SERVING, Family.GLOO, _CLOSED.format(told))
            failure_log.print_lost_peer(self.log, lost, self.wording)
        return 0

    def _on_early_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        sys.stdout.flush()
        os._exit(0)


def _own_refusal(arguments: ServeArguments, moment: str, facts: Facts) -> Fault | None:
    """What vLLM itself refuses about a command, without any fault file."""
    parser = arguments.value("tool_call_parser")
    if moment == "arguments" and arguments.value("enable_auto_tool_choice") and not parser:
        wanted = "Error: --enable-auto-tool-choice requires --tool-call-parser"
        return _fault(Stage.ENGINE_INIT, Family.CONFIG_INVALID, f"TypeError: {wanted}")
    if moment == "bind" and arguments.value("enable_auto_tool_choice") and parser not in TOOL_PARSERS:
        known = f"invalid tool call parser: {parser} (chose from {{ {','.join(TOOL_PARSERS)} }})"
        return _fault(Stage.ENGINE_INIT, Family.CONFIG_INVALID, f"KeyError: {known!r}")
    longest = startup_log.facts_of(arguments.model).longest_context
    too_long = startup_log.max_model_len_of(arguments) > longest
    if moment == "config" and too_long and facts.env.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
        return _fault(Stage.ENGINE_INIT, Family.CONFIG_INVALID)
    return None


def _fault(stage: Stage, family: Family, message: str | None = None, do: str = "error") -> Fault:
    return Fault(stage=stage, family=family, when=Condition("true"), do=do, message=message)


def _bind_fault(error: OSError) -> Fault:
    told = None if error.errno == errno.EADDRINUSE else f"[Errno {error.errno}] {error.strerror}"
    return _fault(Stage.API_READY, Family.PORT_IN_USE, told)


def _launch_facts(arguments: ServeArguments, environment: Mapping[str, str]) -> Facts:
    names = {
        "prefix_caching": bool(arguments.value("enable_prefix_caching")),
        "nnodes": arguments.value("nnodes"),
        "nodes": arguments.value("nnodes"),
        "node_rank": arguments.value("node_rank"),
        "tensor_parallel_size": arguments.value("tensor_parallel_size"),
        "pipeline_parallel_size": arguments.value("pipeline_parallel_size"),
        "data_parallel_size": arguments.value("data_parallel_size"),
        "max_model_len": startup_log.max_model_len_of(arguments),
        "enforce_eager": bool(arguments.value("enforce_eager")),
        "expert_parallel": bool(arguments.value("enable_expert_parallel")),
        "speculative": bool(arguments.value("speculative_config")),
        "model": arguments.model,
    }
    return Facts(names, lambda flag: arguments.value(destination_of(flag) or ""), environment)


def _seconds(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = -1.0
    if not 0 <= value < 86_400:
        raise ValueError(f"{name}={text!r}: must be a number of seconds from 0 on")
    return value
