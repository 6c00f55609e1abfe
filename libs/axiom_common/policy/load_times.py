"""How long an adapter takes to become resident, by what the links and the load queues say."""

from __future__ import annotations

import numpy as np

from axiom_common.model.adapter import MEBIBYTE
from axiom_common.policy.scorers.adapter_affinity import Held
from axiom_common.policy.view import Codes, FleetView, Floats

BYTES_PER_RANK = 5 * MEBIBYTE
"""An 8B model with all linear layers adapted: 40 MiB at rank 8, 320 MiB at rank 64.

Rank x (in + out) x layers x 2 bytes, summed over the linear layers of Llama 3.1 8B.
"""

GBPS = 1e6
"""A gigabyte per second in bytes a ms."""

UNKNOWN_RANK = 16
"""The commonest rank, for adapters that nobody declared."""


def assumed_size_bytes(rank: int) -> int:
    """The size of an adapter whose size is not known. Rank 0: the rank is not known either."""
    return (rank or UNKNOWN_RANK) * BYTES_PER_RANK


def transfer_ms(view: FleetView, size_bytes: int) -> Floats:
    """Host RAM to HBM on an idle link."""
    return view.h2d_fixed_ms + size_bytes / view.h2d_bytes_per_ms


def fetch_ms(view: FleetView, size_bytes: int) -> Floats:
    """Store to host RAM on an idle link."""
    return view.store_fixed_ms + size_bytes / view.store_bytes_per_ms


def queue_ms(view: FleetView, now_ms: float) -> Floats:
    """Until the loads that the engine reported, or that are booked on it, are done.

    A booked load is soon a reported one: the later end counts, not the sum.
    """
    return np.maximum(view.load_queue_ms, view.loads_done_at_ms - now_ms)


def load_ms(held: Codes, *, remaining_ms: Floats, h2d_ms: Floats, cold_ms: Floats) -> Floats:
    """Until the adapter can run, by how the engine holds it (`Held`)."""
    wait = cold_ms.copy()
    np.putmask(wait, held == Held.HOST, h2d_ms)
    np.putmask(wait, held == Held.LOADING, remaining_ms)
    np.putmask(wait, held == Held.RESIDENT, 0.0)
    return wait
