"""base-mismatch: the engine serves another base model."""

from __future__ import annotations

import numpy as np

from axiom_common.policy.view import Bools, Prospect


def base_mismatch(prospect: Prospect) -> Bools:
    """True where the base model is not the one that was asked for."""
    mismatch: Bools = prospect.view.base_model != np.uint64(prospect.ask.base_model)
    return mismatch
