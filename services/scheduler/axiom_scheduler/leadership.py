"""Leadership of the scheduler: its lease, and who is told when it was won or lost."""

from __future__ import annotations

from collections.abc import Callable

from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.lease_keeper import LeaseKeeper
from axiom_common.runtime.logging import Log
from axiom_common.state.lease import LeaseTimes
from axiom_common.wire import keys


class Leadership:
    """One candidate. `on_change` is called when leadership was won or lost."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        holder: str,
        times: LeaseTimes,
        clock: Clock,
        log: Log,
        on_change: Callable[[], None],
    ) -> None:
        self._keeper = LeaseKeeper(
            bucket, keys.SCHEDULER_LEASE, holder=holder, times=times, clock=clock, log=log
        )
        self._log = log
        self._on_change = on_change
        self._told = 0

    @property
    def away(self) -> bool:
        """Whether the registry gave no answer to the last attempt."""
        return self._keeper.away

    @property
    def holder(self) -> str:
        """The name of this candidate in the lease."""
        return self._keeper.holder

    @property
    def fence(self) -> int | None:
        """The fence of this term while this candidate leads, None otherwise."""
        return self._keeper.fence

    async def run(self) -> None:
        """Follow and lead until cancelled."""
        while True:
            await self._keeper.step()
            self._tell()
            await self._keeper.wait()

    async def resign(self) -> None:
        """Give the lease back, so that another candidate need not wait for its end."""
        revision = self._keeper.resign()
        self._tell()
        await self._keeper.give_back(revision)

    def _tell(self) -> None:
        fence = self.fence or 0
        if fence == self._told:
            return
        self._log.info("leads" if fence else "leads no more", fence=fence or self._told)
        self._told = fence
        self._on_change()
