"""The least predicted cost; ties go by rendezvous hash.

Costs are equal when they round to the same microsecond. The hash is of the adapter (or prompt
scope) and the engine, so two gateways with the same view agree without talking, while different
adapters and prompts spread over engines that are equally good.
"""

from __future__ import annotations

import numpy as np

from axiom_common.policy.rendezvous import rendezvous
from axiom_common.policy.view import Prospect, Rows


def least_cost(prospect: Prospect, rows: Rows) -> Rows:
    """`rows` in order of preference, best first."""
    wish = rendezvous(prospect.view.identity[rows], prospect.ask.affinity_hash)
    return rows[np.lexsort((~wish, prospect.cost_us[rows]))]
