"""`axiom bench gateway`: CPU and latency of a request through Axiom's gateway and other routers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from axiom_common.errors import UnavailableError

PEERS = ("nginx", "litellm", "sglang-router", "vllm-router", "axiom")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayBenchOptions:
    """`seconds` is the load of each step; `peers_dir` has what `make bench-peers` installed."""

    engines: int
    adapters: int
    rounds: int
    seconds: float
    peers: tuple[str, ...]
    peers_dir: Path
    as_json: bool


async def bench_gateway(options: GatewayBenchOptions) -> None:
    """Measure all peers, print the figures."""
    raise UnavailableError(f"not measured yet: {options.peers}")
