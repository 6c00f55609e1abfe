"""What the engine's counters say about the last moments: differences, never totals."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from axiom_common.ports.engine import EngineSample, Histogram

LATENCY_POLLS = 8
"""Polls over which TTFT and TPOT are taken: 2 s at the usual poll, so that a stall shows early."""
PREFILL_POLLS = 40
"""An engine counts a prompt's tokens when it is read and its prefill time when the request ends;
a longer stretch makes the two match."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Means over the last polls in ms; None where nothing was counted in them."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    prefill_ms_per_token: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often, over the last polls; None where the engine does not count it, or nothing came that
    could be counted. `prefix_hit_share` is of the prompt tokens that were looked up."""

    preemptions_per_s: float | None = None
    rejections_per_s: float | None = None
    prefix_hit_share: float | None = None


class RecentSamples:
    """The last samples of one engine process, and when each was taken."""

    def __init__(self) -> None:
        self._samples: deque[EngineSample] = deque(maxlen=PREFILL_POLLS + 1)
        self._taken_ms: deque[float] = deque(maxlen=PREFILL_POLLS + 1)

    def add(self, sample: EngineSample, now_ms: float) -> None:
        """Take the next sample in."""
        self._samples.append(sample)
        self._taken_ms.append(now_ms)

    def clear(self) -> None:
        """Start anew: the next sample counts from other totals."""
        self._samples.clear()
        self._taken_ms.clear()

    def latencies(self) -> Latencies:
        """The means now."""
        if len(self._samples) < 2:
            return Latencies()
        last, oldest = self._samples[-1], self._samples[0]
        recent = self._samples[self._recent]
        return Latencies(
            ttft_ms=_mean_ms(recent.ttft, last.ttft),
            tpot_ms=_mean_ms(recent.tpot, last.tpot),
            prefill_ms_per_token=_per_token_ms(oldest, last),
        )

    def rates(self) -> Rates:
        """The rates now."""
        if len(self._samples) < 2:
            return Rates()
        before, last = self._samples[self._recent], self._samples[-1]
        spent_s = (self._taken_ms[-1] - self._taken_ms[self._recent]) / 1e3
        return Rates(
            preemptions_per_s=_ratio(before.preemptions, last.preemptions, spent_s),
            rejections_per_s=_ratio(before.rejections, last.rejections, spent_s),
            prefix_hit_share=_share(before, last),
        )

    @property
    def _recent(self) -> int:
        """Where the last polls begin."""
        return max(0, len(self._samples) - 1 - LATENCY_POLLS)


def is_new_process(before: EngineSample, after: EngineSample, *, gap: bool) -> bool:
    """Whether an engine started anew between two samples.

    Known start times decide. Without them it did if a counter went back, or if it could not be
    reached in between (`gap`): residency that may be gone must not be reported.
    """
    if before.started_s is not None and after.started_s is not None:
        return before.started_s != after.started_s
    return gap or any(
        now < then
        for then, now in (
            (before.prompt_tokens, after.prompt_tokens),
            (before.generation_tokens, after.generation_tokens),
            (before.ttft.count, after.ttft.count),
        )
    )


def _mean_ms(before: Histogram, after: Histogram) -> float | None:
    return _per_unit_ms(after.sum_s - before.sum_s, after.count - before.count)


def _per_token_ms(before: EngineSample, after: EngineSample) -> float | None:
    if after.prefill.count <= before.prefill.count:
        return None
    return _per_unit_ms(
        after.prefill.sum_s - before.prefill.sum_s, after.prompt_tokens - before.prompt_tokens
    )


def _per_unit_ms(spent_s: float, units: float) -> float | None:
    """None where nothing was counted, and where a sum went back: the figures are no good then."""
    return spent_s * 1e3 / units if units > 0 and spent_s >= 0 else None


def _share(before: EngineSample, after: EngineSample) -> float | None:
    if before.prefix_queries is None or after.prefix_queries is None:
        return None
    looked_up = after.prefix_queries - before.prefix_queries
    share = _ratio(before.prefix_hits, after.prefix_hits, looked_up)
    # Tokens found and tokens looked up are counted at two moments.
    return None if share is None else min(share, 1.0)


def _ratio(before: float | None, after: float | None, divisor: float) -> float | None:
    """What was counted in between by `divisor`; None where a count is unknown or went back."""
    if before is None or after is None or divisor <= 0 or after < before:
        return None
    return (after - before) / divisor
