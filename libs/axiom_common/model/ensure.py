"""Ensures: what gateways ask of a node's agent at once, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from axiom_common.model.reason import Reason


class EnsureOutcome(StrEnum):
    """What became of a request to make an adapter resident."""

    RESIDENT = "resident"
    JOINED = "joined"
    ON_REQUEST = "on-request"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureResult:
    """The agent's answer. `reason` is set exactly when refused."""

    outcome: EnsureOutcome
    reason: Reason | None = None
