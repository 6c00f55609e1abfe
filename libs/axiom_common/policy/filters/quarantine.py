"""quarantined: loading the adapter would take a slot that has requests in flight.

Only for adapters that the engine does not hold: what it holds, it serves.
"""

from __future__ import annotations

from axiom_common.policy.view import Bools, Prospect


def quarantined(prospect: Prospect) -> Bools | None:
    """True where the affinity is negative; nowhere for the base model and for baselines."""
    if prospect.ask.holders is None or not prospect.ask.profile.quarantine:
        return None
    return prospect.affinity < 0.0
