"""How busy a workload would keep its fleet, whatever the policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from axiom_sim.fleet.layout import EngineSpec
from axiom_sim.fleet.requests import Workload


def utilisation(workload: Workload, layout: Sequence[EngineSpec]) -> float:
    """Offered load over capacity: each request's own cost on an engine of its region with a full
    batch, no prefix found and no adapter loaded, over the engines' time.

    A request costs `output_tokens * step(full batch) / max_num_seqs + prompt_tokens *
    prefill_ms_per_token + prefill_overhead_ms`.
    """
    profiles = {engine.region: engine.profile for engine in layout}
    asked = np.array(
        [(r.region, r.prompt_tokens, r.output_tokens) for r in workload.requests],
        dtype=np.float64,
    ).reshape(-1, 3)
    total_ms = 0.0
    for region, profile in profiles.items():
        own = asked[asked[:, 0] == region]
        token_ms = profile.itl_ms * profile.load_factor / profile.max_num_seqs
        total_ms += float(own[:, 2].sum()) * token_ms
        total_ms += float(own[:, 1].sum()) * profile.prefill_ms_per_token
        total_ms += len(own) * profile.prefill_overhead_ms
    return total_ms / (workload.duration_ms * len(layout))
