"""Latency health: is the engine slower now than it was, or than its peers are at the same load?

Catches a micro-stall before the queue shows it. The engine's mean and this gateway's own streams
are both evidence; the worse one counts. It is compared with the engine's own recent median and, if
there are at least `PEERS_MIN` engines, with the median of its peers. TPOT is compared as that of an
unloaded engine; TTFT depends on prompts and swings more, so it gets more tolerance.
"""

from __future__ import annotations

from typing import NamedTuple

from axiom_common.model.engine import EngineState
from axiom_common.policy.batching import unloaded_tpot_ms
from axiom_common.policy.cohort import Cohort, upper_median

TPOT_TOLERANCE = 1.5
TTFT_TOLERANCE = 3.0
SLOWDOWN_MAX = 10.0
PEERS_MIN = 3
SAMPLES_MIN = 4
SAMPLES_MAX = 40
"""Ten seconds of beats: longer than a stall, shorter than a change of traffic."""


class LatencyMemory(NamedTuple):
    """The engine's latest means, oldest first; TPOT as that of an unloaded engine."""

    ttft_ms: tuple[float, ...] = ()
    tpot_ms: tuple[float, ...] = ()

    def after(self, state: EngineState) -> LatencyMemory:
        """The memory after one more report; what the engine does not say adds nothing."""
        return LatencyMemory(
            ttft_ms=_appended(self.ttft_ms, state.ttft_ms),
            tpot_ms=_appended(self.tpot_ms, unloaded_tpot_ms(state, state.tpot_ms)),
        )


def tpot_slowdown(tpot_ms: float, memory: LatencyMemory, peers: Cohort) -> float:
    """How many times slower than tolerated tokens come, in [1, SLOWDOWN_MAX].

    `tpot_ms` is the worst witness's, as that of the unloaded engine; 0 without a witness.
    Continuous, so that nothing flaps at a threshold.
    """
    usual = (_usual(memory.tpot_ms), peers.unloaded_tpot_ms if _enough(peers) else None)
    ratio = max((tpot_ms / sample for sample in usual if sample), default=1.0)
    return min(max(1.0, ratio / TPOT_TOLERANCE), SLOWDOWN_MAX)


def ttft_excess_ms(ttft_ms: float, memory: LatencyMemory, peers: Cohort) -> float:
    """How much later than tolerated the first token comes by the worst witness, at least 0.

    `ttft_ms` is 0 without a witness.
    """
    usual = (_usual(memory.ttft_ms), peers.ttft_ms if _enough(peers) else None)
    excess = (ttft_ms - TTFT_TOLERANCE * sample for sample in usual if sample is not None)
    return max(0.0, max(excess, default=0.0))


def latency_health(slowdown: float) -> float:
    """The score in (0, 1]: the share of the normal speed that is left, first token included."""
    return 1.0 / slowdown


def _appended(samples: tuple[float, ...], sample: float | None) -> tuple[float, ...]:
    return samples if sample is None else (*samples, sample)[-SAMPLES_MAX:]


def _usual(samples: tuple[float, ...]) -> float | None:
    return upper_median(samples) if len(samples) >= SAMPLES_MIN else None


def _enough(peers: Cohort) -> bool:
    return peers.engines >= PEERS_MIN
