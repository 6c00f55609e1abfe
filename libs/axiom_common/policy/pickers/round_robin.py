"""Baseline: engines take turns, in the order of their identities; nothing else counts."""

from __future__ import annotations

import numpy as np

from axiom_common.policy.view import Prospect, Rows


def round_robin(prospect: Prospect, rows: Rows) -> Rows:
    """`rows` from the one after the last turn, around the circle."""
    identity = prospect.view.identity[rows]
    had_its_turn = identity <= np.uint64(prospect.ask.turn)
    return rows[np.lexsort((identity, had_its_turn))]
