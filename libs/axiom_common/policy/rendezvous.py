"""Rendezvous hashing: everybody who sees the same engines prefers the same one, without talking.

64-bit arithmetic that wraps, so that a compiled kernel computes the same bits.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import xxhash

_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_MASK = (1 << 64) - 1


@lru_cache(maxsize=8192)
def stable_hash(text: str) -> int:
    """A 64-bit hash of a name, never 0, the same in every process and on every host."""
    return xxhash.xxh3_64_intdigest(text.encode()) or 1


def rendezvous(identities: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """How much each identity wants `key`; the highest wins (the finaliser of splitmix64)."""
    mixed = identities ^ np.uint64(key & _MASK)
    mixed = (mixed ^ (mixed >> _SHIFTS[0])) * _MULTIPLIERS[0]
    mixed = (mixed ^ (mixed >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return mixed ^ (mixed >> _SHIFTS[2])
