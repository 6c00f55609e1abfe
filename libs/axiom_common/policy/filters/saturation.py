"""saturated: a request would wait longer than the profile tolerates, bookings included.

Judged engine by engine: a fine average never hides one engine that is full.
"""

from __future__ import annotations

from axiom_common.policy.view import Bools, Prospect


def saturated(prospect: Prospect) -> Bools:
    """True where the predicted wait reaches the cap."""
    return prospect.view.wait_ms >= prospect.ask.profile.wait_cap_ms
