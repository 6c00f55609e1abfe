"""What an engine costs on its GPU: the constants of the step formula.

A step with `n` running sequences and `t` prefill tokens takes

    itl_ms * (1 + (load_factor - 1) * n / max_num_seqs) + t * prefill_ms_per_token

and `prefill_overhead_ms` more for each request whose prefill starts in it. An adapter load stops
the step for its whole time, as in a stock engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """Where an adapter was when a step or a load call asked for it."""

    HBM = "hbm"
    HOST = "host"
    STORE = "store"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """Constants of one GPU and model; times in ms, rates in GB/s (1e9 bytes).

    `mib_per_rank`: size of an adapter over its rank, all linear layers in 16 bit.
    """

    name: str
    prefill_overhead_ms: float
    prefill_ms_per_token: float
    itl_ms: float
    load_factor: float
    max_num_seqs: int
    kv_tokens: int
    chunked_prefill_tokens: int
    h2d_gbps: float
    load_fixed_ms: float
    load_ms_per_layer: float
    layers: int
    store_gbps: float
    store_fixed_ms: float
    mib_per_rank: float

    def step_ms(
        self, *, running: int, max_num_seqs: int, prefill_tokens: int, starts: int
    ) -> float:
        """Duration of a step without adapter loads. `starts`: prefills that begin in it."""
        slow_down = 1 + (self.load_factor - 1) * running / max_num_seqs
        return (
            self.itl_ms * slow_down
            + prefill_tokens * self.prefill_ms_per_token
            + starts * self.prefill_overhead_ms
        )

    def load_ms(self, tier: Tier, size_bytes: int) -> float:
        """How long bringing an adapter of `size_bytes` from `tier` into HBM stops the engine."""
        if tier is Tier.HBM:
            return 0.0
        to_device = (
            self.load_fixed_ms
            + self.load_ms_per_layer * self.layers
            + size_bytes / (self.h2d_gbps * 1e6)
        )
        if tier is Tier.HOST:
            return to_device
        return to_device + self.store_fixed_ms + size_bytes / (self.store_gbps * 1e6)


PROFILES = {
    profile.name: profile
    for profile in (
        # An 8B model on one H100: figures of public benchmarks, adapters over PCIe 4.0 x16 and
        # from a 10 Gb/s store.
        EngineProfile(
            name="h100-8b",
            prefill_overhead_ms=30,
            prefill_ms_per_token=0.05,
            itl_ms=12,
            load_factor=2.5,
            max_num_seqs=64,
            kv_tokens=400_000,
            chunked_prefill_tokens=2048,
            h2d_gbps=25,
            load_fixed_ms=8,
            load_ms_per_layer=1.0,
            layers=32,
            store_gbps=1.2,
            store_fixed_ms=40,
            mib_per_rank=5,
        ),
        # A model so small that a step costs next to nothing: for tests of behaviour, not of speed.
        EngineProfile(
            name="tiny",
            prefill_overhead_ms=1,
            prefill_ms_per_token=0.002,
            itl_ms=3,
            load_factor=1.5,
            max_num_seqs=16,
            kv_tokens=16_384,
            chunked_prefill_tokens=2048,
            h2d_gbps=25,
            load_fixed_ms=2,
            load_ms_per_layer=0.5,
            layers=2,
            store_gbps=1.2,
            store_fixed_ms=5,
            mib_per_rank=0.01,
        ),
    )
}
