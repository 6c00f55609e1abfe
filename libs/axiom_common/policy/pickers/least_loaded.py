"""Baseline: the engine with the fewest requests in flight, bookings counted; adapters are ignored.

Ties go by the hash of the request, so that an idle fleet is used evenly.
"""

from __future__ import annotations

import numpy as np

from axiom_common.policy.rendezvous import rendezvous
from axiom_common.policy.view import Prospect, Rows


def least_loaded(prospect: Prospect, rows: Rows) -> Rows:
    """`rows` in order of preference, best first."""
    wish = rendezvous(prospect.view.identity[rows], prospect.ask.request_hash)
    return rows[np.lexsort((~wish, prospect.view.in_flight[rows]))]
