"""Keeps this instance's lease and hears of the others': the shell around `sharing`.

The registry may be away: the lease then ends by itself, and who was known to live is taken to live
on, until the registry says otherwise.
"""

from __future__ import annotations

import asyncio

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import RegionId
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket, Registry
from axiom_common.runtime.lease_keeper import LeaseKeeper
from axiom_common.runtime.logging import Log
from axiom_common.state.lease import LeaseTimes
from axiom_common.wire import keys
from axiom_telemetry.sharing import Sharing

LEASE_TIMES = LeaseTimes(ttl_ms=2_000.0, margin_ms=500.0, renew_ms=400.0, retry_ms=200.0)
"""A holder finds its lease gone at the next renewal, which is within `sharing.GRACE_MS`."""
OPEN_RETRY_MS = 500.0


class Membership:
    """`instance` must be this process's own name."""

    def __init__(
        self,
        region: RegionId,
        instance: str,
        registry: Registry,
        sharing: Sharing,
        clock: Clock,
        log: Log,
    ) -> None:
        self._region = region
        self._instance = instance
        self._registry = registry
        self._sharing = sharing
        self._clock = clock
        self._log = log
        self._keeper: LeaseKeeper | None = None
        self._away = True

    @property
    def away(self) -> bool:
        """Whether the registry gave no answer to the last attempt."""
        return self._away if self._keeper is None else self._keeper.away

    async def run(self) -> None:
        """Hold the lease and watch the others' until cancelled."""
        bucket = await self._open()
        keeper = LeaseKeeper(
            bucket,
            keys.telemetry_lease(self._instance),
            holder=self._instance,
            times=LEASE_TIMES,
            clock=self._clock,
            log=self._log,
        )
        self._keeper = keeper
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(bucket), name="watch leases")
            while True:
                await keeper.step()
                await keeper.wait()

    async def leave(self) -> None:
        """Give the lease back, so that others take over at once."""
        if self._keeper is not None:
            await self._keeper.give_back(self._keeper.resign())

    async def _open(self) -> Bucket:
        while True:
            try:
                bucket = await self._registry.bucket(keys.lease_bucket(self._region))
            except UnavailableError as error:
                self._log.warning("registry away", once_a_minute="registry", cause=str(error))
                await self._clock.sleep_ms(OPEN_RETRY_MS)
            else:
                self._away = False
                return bucket

    async def _watch(self, bucket: Bucket) -> None:
        async for entry in bucket.watch():
            if entry is None:
                self._sharing.informed()
                continue
            name = keys.leased_telemetry(entry.key)
            if name is None:
                continue
            if entry.value is None:
                self._sharing.vanished(name, self._clock.now_ms())
            else:
                self._sharing.present(name)
