"""Which processes make up the local stack, and with what settings. Pure: options and ports in,
command lines and settings files out.

Start order is the order of the list; the end goes through it backwards.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axiom_cli.stack.processes import ProcessSpec
from axiom_cli.stack.servers import HOST, NATS, VALKEY
from axiom_common.model.adapter import MEBIBYTE, AdapterSpec
from axiom_common.model.ids import EngineId, engine_id
from axiom_common.wire.reports import BEAT_MS

REGION = "local"
BASE_MODEL = "sim-8b"
ADAPTER_RANK = 16
ADAPTER_BYTES = 80 * MEBIBYTE
"""Rank 16 on all linear layers of an 8B model."""
GATEWAY_DRAIN_MS = 3_000.0
SETTLE_MS = 300.0

GATEWAY = "gateway"
GATEWAY_OPS = "gateway-ops"
"""The port of the gateway's health and metrics."""
ADMIN_KEY = "admin.key"
"""In the run directory: the secret of the gateway's admin key."""
TELEMETRY = "telemetry"
SCHEDULER = "scheduler"
NATS_PROCESS = NATS.name
VALKEY_PROCESS = VALKEY.name


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineShape:
    """A simulated engine: its slots, and the kind that it behaves like."""

    profile: str = "h100-8b"
    hbm_slots: int = 4
    host_slots: int = 12
    max_num_seqs: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """What to start. `port` is the gateway's, 0 takes a free one.

    `nats_url` and `redis_url` name servers that run already; without them own ones are started.
    """

    run_dir: Path
    port: int = 0
    nats_url: str | None = None
    redis_url: str | None = None
    nodes: int = 2
    engines_per_node: int = 2
    engine: EngineShape = field(default_factory=EngineShape)
    adapters: int = 24
    default_profile: str = "axiom"
    seed: int = 0

    @property
    def engine_ids(self) -> tuple[EngineId, ...]:
        """All engines, node by node."""
        return tuple(
            engine_id(node, f"engine-{index + 1}")
            for node in self.node_names
            for index in range(self.engines_per_node)
        )

    @property
    def node_names(self) -> tuple[str, ...]:
        """All nodes."""
        return tuple(f"node-{index + 1}" for index in range(self.nodes))


def agent_name(node: str) -> str:
    """The process name of a node's agent."""
    return f"agent-{node}"


def port_names(options: StackOptions) -> tuple[str, ...]:
    """Names of all ports but that of the gateway's APIs."""
    servers = [NATS_PROCESS] if options.nats_url is None else []
    servers += [VALKEY_PROCESS] if options.redis_url is None else []
    agents = [agent_name(node) for node in options.node_names]
    return (*servers, *options.engine_ids, *agents, TELEMETRY, SCHEDULER, GATEWAY_OPS)


def metrics_ports(options: StackOptions) -> dict[str, str]:
    """The port at which each process of Axiom tells its metrics, both by name."""
    agents = [agent_name(node) for node in options.node_names]
    return {name: name for name in (*agents, TELEMETRY, SCHEDULER)} | {GATEWAY: GATEWAY_OPS}


def declared_adapters(options: StackOptions) -> tuple[AdapterSpec, ...]:
    """The adapters of the stack: `adapter-01` and so on."""
    return tuple(
        AdapterSpec(
            name=f"adapter-{index + 1:02}",
            base_model=BASE_MODEL,
            revision=1,
            path=f"/adapters/adapter-{index + 1:02}",
            rank=ADAPTER_RANK,
            size_bytes=ADAPTER_BYTES,
        )
        for index in range(options.adapters)
    )


def engine_url(ports: Mapping[str, int], engine: EngineId) -> str:
    """Where an engine listens."""
    return f"http://{HOST}:{ports[engine]}"


def nats_url(options: StackOptions, ports: Mapping[str, int]) -> str:
    """The NATS server that the stack uses."""
    return options.nats_url or NATS.url(ports[NATS_PROCESS])


def redis_url(options: StackOptions, ports: Mapping[str, int]) -> str:
    """The Valkey or Redis server that the stack uses."""
    return options.redis_url or VALKEY.url(ports[VALKEY_PROCESS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One Axiom process: the module to run, and its settings."""

    name: str
    module: str
    settings: dict[str, Any]


def engine_processes(options: StackOptions, ports: Mapping[str, int]) -> list[ProcessSpec]:
    """The simulated engines, empty at their start."""
    shape = options.engine
    return [
        ProcessSpec(
            name=engine,
            argv=(
                *(sys.executable, "-m", "axiom_sim.engine"),
                *("--port", str(ports[engine])),
                *("--served-model-name", BASE_MODEL),
                *("--profile", shape.profile),
                *("--max-loras", str(shape.hbm_slots)),
                *("--max-cpu-loras", str(shape.host_slots)),
                *("--max-lora-rank", str(ADAPTER_RANK)),
                *("--max-num-seqs", str(shape.max_num_seqs)),
                *("--seed", str(options.seed)),
            ),
        )
        for engine in options.engine_ids
    ]


def services(options: StackOptions, ports: Mapping[str, int]) -> list[Service]:
    """Agents, telemetry, scheduler, gateway. `ports` holds a port for each of `port_names` and for
    the gateway."""
    common = {
        "region": REGION,
        "nats_url": nats_url(options, ports),
        "redis_url": redis_url(options, ports),
        "host": HOST,
    }
    agents = [
        Service(
            name=agent_name(node),
            module="axiom_node_agent",
            settings=common
            | {
                "node": node,
                "port": ports[agent_name(node)],
                "beat_ms": BEAT_MS,
                "engines": [
                    _agent_engine(options, ports, engine)
                    for engine in options.engine_ids
                    if engine.partition(".")[0] == node
                ],
            },
        )
        for node in options.node_names
    ]
    gateway = {
        "port": ports[GATEWAY],
        "ops_port": ports[GATEWAY_OPS],
        "admin_key_file": str(options.run_dir / ADMIN_KEY),
        "default_profile": options.default_profile,
        "allow_profile_header": True,
        "drain_ms": GATEWAY_DRAIN_MS,
    }
    return [
        *agents,
        Service(
            name=TELEMETRY,
            module="axiom_telemetry",
            settings=common | {"port": ports[TELEMETRY]},
        ),
        Service(
            name=SCHEDULER,
            module="axiom_scheduler",
            # Nobody planned for these nodes before: there is nothing to wait for.
            settings=common | {"port": ports[SCHEDULER], "settle_ms": SETTLE_MS},
        ),
        Service(name=GATEWAY, module="axiom_gateway", settings=common | gateway),
    ]


def service_process(service: Service, config: Path) -> ProcessSpec:
    """The command line of a service whose settings lie at `config`."""
    argv = (sys.executable, "-m", service.module, "--config", str(config))
    return ProcessSpec(name=service.name, argv=argv)


def _agent_engine(
    options: StackOptions, ports: Mapping[str, int], engine: EngineId
) -> dict[str, Any]:
    """An engine as its agent's settings describe it."""
    return {
        "name": engine.partition(".")[2],
        "url": engine_url(ports, engine),
        "base_model": BASE_MODEL,
        "hbm_slots": options.engine.hbm_slots,
        "host_slots": options.engine.host_slots,
        "max_lora_rank": ADAPTER_RANK,
        "max_num_seqs": options.engine.max_num_seqs,
    }
