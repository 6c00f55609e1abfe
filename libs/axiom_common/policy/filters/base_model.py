"""base-mismatch: the engine serves another base model."""

from __future__ import annotations

import numpy as np

from axiom_common.policy.view import Bools, StandingView, Wanted


def base_mismatch(view: StandingView, wanted: Wanted) -> Bools:
    """True where the base model is not the one that was asked for."""
    mismatch: Bools = view.base_model != np.uint64(wanted.base_model)
    return mismatch
