"""Sources of chance of a workload: one for each purpose and phase, all from the run's seed.

What one purpose draws moves no other: other lengths leave the arrivals as they were.
"""

from __future__ import annotations

from zlib import crc32

from numpy.random import PCG64, Generator, SeedSequence


def chance(seed: int, purpose: str, phase: int = 0) -> Generator:
    """The source of one purpose in one phase."""
    return Generator(PCG64(SeedSequence([seed, crc32(purpose.encode()), phase])))
