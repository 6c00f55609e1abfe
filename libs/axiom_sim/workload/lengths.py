"""How long prompts and answers are.

Every request fits into an engine: prompt and answer together are cut to the tokens that the
smallest engine's KV holds, and what is drawn from a law to a context of 131,072 tokens and an
answer of 8,192.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from axiom_sim.scenario.traffic import LengthPart
from axiom_sim.workload.traces import azure, mooncake

Ints = NDArray[np.int64]

CONTEXT_MAX = 131_072
ANSWER_MAX = 8_192
_P95_SIGMAS = 1.6449
"""The 95th percentile of a normal law, in standard deviations."""
_OUT_P95_OVER_MEDIAN = 451 / 129
"""Of answers in Azure's conversations."""


def draw_lengths(
    parts: Sequence[LengthPart], rows: Ints, kv_tokens: int, rng: Generator
) -> tuple[Ints, Ints]:
    """Prompt and output tokens of one request for each of `rows`, the rows of Mooncake's trace that
    they would be."""
    prompt = np.empty(len(rows), dtype=np.int64)
    output = np.empty(len(rows), dtype=np.int64)
    edges = np.cumsum([part.share for part in parts])[:-1]
    which = np.searchsorted(edges, rng.random(len(rows)), side="right")
    for i, part in enumerate(parts):
        chosen = np.flatnonzero(which == i)
        prompt[chosen], output[chosen] = _part(part, rows[chosen], rng)
    output = np.clip(output, 1, kv_tokens - 1)
    return np.clip(prompt, 1, kv_tokens - output), output


def _part(part: LengthPart, rows: Ints, rng: Generator) -> tuple[Ints, Ints]:
    if part.kind == "azure-conv":
        table = np.array([(row.prompt_tokens, row.output_tokens) for row in azure()])
        drawn = table[rng.integers(len(table), size=len(rows))]
        return drawn[:, 0], drawn[:, 1]
    if part.kind == "mooncake":
        table = np.array([(row.prompt_tokens, row.output_tokens) for row in mooncake()])
        drawn = table[rows % len(table)]
        return drawn[:, 0], drawn[:, 1]
    if part.kind == "fixed":
        return np.full(len(rows), part.fixed_in), np.full(len(rows), part.fixed_out)
    out_median = part.out_median or 1
    out_p95 = part.out_p95 or out_median * _OUT_P95_OVER_MEDIAN
    prompt = _lognormal(part.in_median or 1, part.in_p95 or 1, len(rows), rng)
    output = _lognormal(out_median, out_p95, len(rows), rng)
    return np.minimum(prompt, CONTEXT_MAX), np.minimum(output, ANSWER_MAX)


def _lognormal(median: float, p95: float, count: int, rng: Generator) -> Ints:
    sigma = log(p95 / median) / _P95_SIGMAS
    # No draw lies beyond 8 sigmas: a float of any size would overflow an integer else.
    normal = np.clip(rng.standard_normal(count), -8, 8)
    return np.rint(np.minimum(median * np.exp(sigma * normal), exp(40))).astype(np.int64)
