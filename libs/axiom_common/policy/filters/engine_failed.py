"""engine-failed: the engine already failed this very request, which is now tried elsewhere."""

from __future__ import annotations

import numpy as np

from axiom_common.policy.view import Bools, Prospect


def engine_failed(prospect: Prospect) -> Bools:
    """True where the request was sent before."""
    mask = np.zeros(len(prospect.view.identity), np.bool_)
    mask[prospect.ask.excluded] = True
    return mask
