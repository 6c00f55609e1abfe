"""role-mismatch: the engine serves only the other phase of requests."""

from __future__ import annotations

from axiom_common.model.engine import Role
from axiom_common.policy.view import ROLE_CODE, Bools, Prospect


def role_mismatch(prospect: Prospect) -> Bools:
    """True where the role is neither `both` nor the one that was asked for."""
    role = prospect.view.role
    mismatch: Bools = (role != ROLE_CODE[Role.BOTH]) & (role != prospect.ask.role)
    return mismatch
