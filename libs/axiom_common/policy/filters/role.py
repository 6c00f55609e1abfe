"""role-mismatch: the engine serves only the other phase of requests."""

from __future__ import annotations

from axiom_common.model.engine import Role
from axiom_common.policy.view import ROLE_CODE, Bools, StandingView, Wanted


def role_mismatch(view: StandingView, wanted: Wanted) -> Bools:
    """True where the role is neither `both` nor the one that was asked for."""
    mismatch: Bools = (view.role != ROLE_CODE[Role.BOTH]) & (view.role != wanted.role)
    return mismatch
