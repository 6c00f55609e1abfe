"""Whether every gateway of the region has taken over a change of the desired state.

Each tells its peers the revision up to which it has. Whoever is heard has to say so, and whoever
fell silent without a goodbye is waited for, for a minute (`EXPIRED_MS`). From then on changes are
acknowledged without it, and it is named: it may be at work, cut off. A gateway that starts tells
its peers of itself before it begins to read the desired state: so either it reads the change, or
its first word comes before the change is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import NamedTuple

from axiom_common.model.ids import GatewayId
from axiom_common.ports.clock import Clock
from axiom_gateway.admin_problems import REQUEST, AdminError

EVERYWHERE_MS = 5_000.0
"""How long a call waits for all of them."""
TRAVEL_MS = 50.0
"""What others sent before the change was durable is here by then; and so is, at its engine, what
this gateway sent last."""
LISTENED_MS = 2_000.0
"""Each tells all that it has each second: whoever listened for so long knows who is there."""
POLL_MS = 10.0


class Unconfirmed(NamedTuple):
    """Gateways that may be at work and do not say that they go by a change."""

    late: tuple[GatewayId, ...] = ()
    """They may yet confirm it, and did not in time."""
    missing: tuple[GatewayId, ...] = ()
    """They fell silent so long ago that nobody waits for them."""

    @property
    def names(self) -> tuple[GatewayId, ...]:
        """All of them."""
        return tuple(sorted({*self.late, *self.missing}))


Confirm = Callable[[int], Awaitable[Unconfirmed]]
"""Waits until all have taken over a revision; the gateways that did not confirm it in time."""


class NotEverywhereError(AdminError):
    """A change is durable, and some gateways did not confirm that they have taken it over."""

    code = "not-everywhere"
    status = HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, what: str, late: tuple[GatewayId, ...]) -> None:
        named = ", ".join(late)
        super().__init__(
            f"{what} stands, but is not confirmed by {named}: ask again to wait on", path=REQUEST
        )


class Everywhere:
    """Waits for all gateways. `applied` is this one's own revision, `unconfirmed` names peers that
    have not taken over a revision, `missing` those that nobody waits for any more, `unbroken_ms`
    tells for how long nothing of them was missed."""

    def __init__(
        self,
        clock: Clock,
        *,
        gateway: GatewayId,
        applied: Callable[[], int],
        unconfirmed: Callable[[int], tuple[GatewayId, ...]],
        missing: Callable[[], tuple[GatewayId, ...]],
        unbroken_ms: Callable[[], float],
    ) -> None:
        self._clock = clock
        self.gateway = gateway
        self._applied = applied
        self._unconfirmed = unconfirmed
        self.missing = missing
        self._unbroken_ms = unbroken_ms

    async def everywhere(self, revision: int) -> Unconfirmed:
        """Wait until all have taken over `revision`, at most `EVERYWHERE_MS`; the gateways that did
        not confirm it by then. This one is among them when it can't know whom there is to ask."""
        deadline_ms = self._clock.now_ms() + EVERYWHERE_MS
        await self._clock.sleep_ms(TRAVEL_MS)
        while (late := self._late(revision)) and self._clock.now_ms() < deadline_ms:
            await self._clock.sleep_ms(POLL_MS)
        return Unconfirmed(late, self.missing())

    def _late(self, revision: int) -> tuple[GatewayId, ...]:
        knows = self._applied() >= revision and self._unbroken_ms() >= LISTENED_MS
        own = () if knows else (self.gateway,)
        return (*own, *self._unconfirmed(revision))
