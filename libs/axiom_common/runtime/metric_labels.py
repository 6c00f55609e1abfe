"""What several services' metrics have in common."""

from __future__ import annotations

from enum import StrEnum

from axiom_common.model.reason import Reason
from axiom_common.runtime.metrics import OTHER, CounterName, GaugeName, Label, Service
from axiom_common.wire.bounds import ENGINES_MAX


def label(name: str, values: type[StrEnum], *more: str) -> Label:
    """A label with these values and no others."""
    return Label(name, (*(value.value for value in values), *more))


def nats_refusals(service: Service) -> CounterName:
    """What NATS did not allow."""
    about = "What this process published or subscribed to without NATS's permission."
    return CounterName(service, "nats_refusals_total", about)


def degraded(service: Service, *what: str) -> GaugeName:
    """What `/readyz` may name."""
    about = "1 while `/readyz` names it as degraded, else 0."
    return GaugeName(service, "degraded_ratio", about, (Label("what", (*what, OTHER)),))


ENGINE = Label("engine", values_max=ENGINES_MAX, bound="engines of one node's settings")
REASON = label("reason", Reason)
