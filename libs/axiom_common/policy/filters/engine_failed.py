"""engine-failed: the engine already failed this very request, which is now tried elsewhere."""

from __future__ import annotations

from axiom_common.policy.view import Bools, Prospect


def engine_failed(prospect: Prospect) -> Bools | None:
    """True where the request was sent before."""
    return prospect.ask.excluded
