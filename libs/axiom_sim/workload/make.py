"""Makes what a variant of a scenario asks its fleet, from a seed.

The same seed gives the same workload everywhere: nothing here depends on the order of sets, hashes
of text, or the clock.
"""

from __future__ import annotations

import numpy as np

from axiom_common.errors import InvalidInputError
from axiom_sim.fleet.requests import Request, SimAdapter, Workload
from axiom_sim.scenario.resolved import CUT_REQUESTS, Phase, Resolved
from axiom_sim.scenario.values import REQUESTS_MAX
from axiom_sim.workload.arrivals import draw_arrivals
from axiom_sim.workload.chance import chance
from axiom_sim.workload.lengths import draw_lengths
from axiom_sim.workload.popularity import draw_adapters
from axiom_sim.workload.prefixes import draw_prompts

_MIB = 1 << 20


def make_workload(resolved: Resolved, seed: int) -> Workload:
    """The requests of one run. A run is cut after CUT_REQUESTS, unless its file wants it whole;
    then it raises InvalidInputError if there are more than REQUESTS_MAX."""
    most = REQUESTS_MAX if resolved.whole else CUT_REQUESTS
    requests: list[Request] = []
    end_ms, cut = 0.0, False
    for phase in resolved.phases:
        end_ms, cut = _add_phase(requests, resolved, phase, seed, most - len(requests))
        if cut:
            break
    if cut and resolved.whole:
        raise InvalidInputError(
            f"{resolved.scenario}: more than {REQUESTS_MAX} requests", path="whole"
        )
    return Workload(
        adapters=make_adapters(resolved, seed), requests=requests, duration_ms=end_ms, cut=cut
    )


def _add_phase(
    requests: list[Request], resolved: Resolved, phase: Phase, seed: int, most: int
) -> tuple[float, bool]:
    """Add a phase's requests; says when it ends, and whether it was cut."""
    arrived = draw_arrivals(phase, resolved.regions, resolved.adapters.count, seed, most)
    adapters = draw_adapters(resolved, phase, arrived, seed)
    rng = chance(seed, "lengths", phase.number)
    tokens, outputs = draw_lengths(phase.lengths.parts, arrived.row, resolved.kv_tokens, rng)
    prompts = draw_prompts(resolved, phase, arrived, adapters, tokens, seed)
    outputs = np.minimum(outputs, resolved.kv_tokens - np.array(prompts.tokens, dtype=np.int64))
    columns = zip(
        range(len(requests), len(requests) + len(adapters)),
        arrived.at_ms.tolist(),
        arrived.region.tolist(),
        adapters.tolist(),
        prompts.tokens,
        outputs.tolist(),
        prompts.prefixes,
        strict=True,
    )
    requests.extend(Request(*column) for column in columns)
    return arrived.end_ms, arrived.cut


def make_adapters(resolved: Resolved, seed: int) -> tuple[SimAdapter, ...]:
    """The adapters; each rank has its share of them, as near as whole adapters allow."""
    adapters = resolved.adapters
    ranks = sorted(adapters.mib)
    edges = np.rint(np.cumsum([adapters.rank_share[rank] for rank in ranks]) * adapters.count)
    edges[-1] = adapters.count
    sizes = np.diff(edges, prepend=0).astype(np.int64)
    dealt = chance(seed, "adapters").permutation(np.repeat(np.array(ranks), sizes)).tolist()
    return tuple(
        SimAdapter(i, f"adapter-{i}", rank, round(adapters.mib[rank] * _MIB))
        for i, rank in enumerate(dealt)
    )
