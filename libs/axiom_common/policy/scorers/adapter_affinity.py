"""Adapter affinity: how close an adapter is to running on an engine. The heart of Axiom.

    the adapter on the engine                        affinity                  meaning
    resident in HBM                                  1.0                       run it now
    being loaded                                     1 - remaining / cold,     join that load
                                                     from the host score to just below 1.0
    in host RAM; a slot is free or its tenant idle   1 - h2d / cold,           one bus transfer
                                                     within [0.5, 0.95]
    nowhere; a slot is free                          0.25                      harms nobody
    nowhere; every slot taken, one tenant is idle    0.0 exactly               safe eviction
    not resident; every slot has requests in flight  -1.0                      quarantined

`h2d` and `cold` are the predicted times, queued loads included, to bring the adapter into HBM from
host RAM and from the store. Quarantine is for this adapter only: the same engine scores 1.0 for
what it holds. A request for the base model needs no slot and is at home everywhere: 1.0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from axiom_common.policy.view import Codes, Floats, Seen

RESIDENT = 1.0
LOADING_MAX = 0.99
HOST_MAX, HOST_MIN = 0.95, 0.5
COLD_FREE_SLOT = 0.25
SAFE_EVICTION = 0.0
QUARANTINED = -1.0


class Held:
    """How an engine holds an adapter. Plain numbers, best last: they stand in arrays."""

    NOT: Final = 0
    HOST: Final = 1
    LOADING: Final = 2
    RESIDENT: Final = 3


class Slot:
    """What a load would get on an engine, with all that is booked there."""

    BUSY: Final = 0
    IDLE_VICTIM: Final = 1
    FREE: Final = 2


COLD_AFFINITY = np.array([QUARANTINED, SAFE_EVICTION, COLD_FREE_SLOT])
"""By `Slot`: the score where nothing of the adapter is."""


def adapter_affinity(
    held: Codes, slot: Codes, *, remaining_ms: Floats, h2d_ms: Floats, cold_ms: Floats
) -> Floats:
    """The score of each engine in [-1, 1]. `held` are `Held`, `slot` are `Slot`; times in ms.

    Each line overrules those above it.
    """
    host = np.minimum(np.maximum(1.0 - h2d_ms / cold_ms, HOST_MIN), HOST_MAX)
    loading = np.minimum(np.maximum(1.0 - remaining_ms / cold_ms, host), LOADING_MAX)
    score = np.full(len(held), SAFE_EVICTION)
    np.putmask(score, slot == Slot.FREE, COLD_FREE_SLOT)
    np.putmask(score, held == Held.HOST, host)
    np.putmask(score, slot == Slot.BUSY, QUARANTINED)
    np.putmask(score, held == Held.LOADING, loading)
    np.putmask(score, held == Held.RESIDENT, RESIDENT)
    return score


def adapter_affinity_of(seen: Seen) -> float:
    """The score of one engine that was seen."""
    if seen.held == Held.RESIDENT:
        return RESIDENT
    score = adapter_affinity(
        np.array([seen.held], np.int8),
        np.array([seen.slot], np.int8),
        remaining_ms=np.array([seen.rest_ms]),
        h2d_ms=np.array([seen.h2d_ms]),
        cold_ms=np.array([seen.cold_ms]),
    )
    return float(score[0])
