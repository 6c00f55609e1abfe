"""What people declare reaches this gateway: models, adapters, profiles, keys, orders of engines."""

from __future__ import annotations

import asyncio

from axiom_common.errors import UnavailableError
from axiom_common.model.access import Role
from axiom_common.model.ids import RegionId, node_of
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.desired_watch import DesiredWatch
from axiom_common.runtime.logging import Log
from axiom_common.runtime.ops import REGISTRY_AWAY, REGISTRY_RESET
from axiom_gateway.admin_access import Access
from axiom_gateway.known_desired import KnownDesired
from axiom_gateway.profile_book import ProfileBook
from axiom_gateway.state import GatewayState
from axiom_gateway.watch import Watches

RETRY_MS = 500.0


class DeclaredFeed:
    """Follows the desired state, and hands on what changed. `admin_secret` opens the admin API
    whatever keys are declared."""

    def __init__(
        self,
        bucket: Bucket,
        bus: Bus,
        clock: Clock,
        log: Log,
        *,
        region: RegionId,
        state: GatewayState,
        profiles: ProfileBook,
        watches: Watches,
        admin_secret: str | None,
    ) -> None:
        self._clock = clock
        self._log = log
        self._region = region
        self._state = state
        self._profiles = profiles
        self._watches = watches
        self._away = False
        self.watch = DesiredWatch(bucket, log, self._changed)
        self.known = KnownDesired(self.watch, bus, clock)
        self.access = Access(known=lambda: self.watch.synced, admin_secret=admin_secret)
        watches.may_watch = lambda key: self.access.grants(key, Role.VIEWER)

    def applied(self) -> int:
        """The revision of the desired state up to which all of it is in force here."""
        return self.watch.in_force

    def degraded(self) -> list[str]:
        """What is not as it should be, by stable names."""
        found = []
        if self._away or not self.watch.synced:
            found.append(REGISTRY_AWAY)
        if self.watch.reset:
            found.append(REGISTRY_RESET)
        return found

    async def run(self, told: asyncio.Event) -> None:
        """Follow once peers were `told` of this gateway: what is ordered from then on waits for its
        word."""
        await told.wait()
        while True:
            try:
                await self.watch.run()
            except UnavailableError as error:
                self._away = True
                self._log.warning("registry away", once_a_minute="registry", cause=str(error))
            await self._clock.sleep_ms(RETRY_MS)

    def _changed(self) -> None:
        self._away = False
        self.access.keys_changed(self.watch.api_keys)
        self._watches.keys_changed()
        if self._profiles.declared(self.watch.profiles):
            self._state.profiles_changed(self._profiles)
        self._state.desired_changed(self.watch.adapters, self.watch.base_models)
        orders = self.watch.engine_orders.values()
        ordered = self._state.orders_changed(o for o in orders if o.region == self._region)
        for node in sorted({node_of(engine) for engine in ordered}):
            self._watches.changed(node, figures_only=False)
