"""Keeps the scheduler's lease: the shell around `state.lease`, and the only writer of the lease."""

from __future__ import annotations

from collections.abc import Callable

from axiom_common.errors import ConflictError, UnavailableError, WireError
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.logging import Log
from axiom_common.state import lease
from axiom_common.wire import keys
from axiom_common.wire.schemas import Lease, decode, encode


class Leadership:
    """One candidate. `holder` must be this process's own: two alike would share a lease.

    `on_change` is called when leadership was won or lost.
    """

    def __init__(
        self,
        bucket: Bucket,
        *,
        holder: str,
        times: lease.LeaseTimes,
        clock: Clock,
        log: Log,
        on_change: Callable[[], None],
    ) -> None:
        self._bucket = bucket
        self._clock = clock
        self._log = log
        self._on_change = on_change
        self._state = lease.LeaseState(holder=holder, times=times)
        self._told = 0
        self.away = False
        """Whether the registry gave no answer to the last attempt."""

    @property
    def holder(self) -> str:
        """The name of this candidate in the lease."""
        return self._state.holder

    @property
    def fence(self) -> int | None:
        """The fence of this term while this candidate leads, None otherwise."""
        leads = lease.leads(self._state, self._clock.now_ms())
        return self._state.fence if leads else None

    async def run(self) -> None:
        """Follow and lead until cancelled."""
        while True:
            attempt = lease.attempt(self._state, self._clock.now_ms())
            if attempt is not None:
                await self._try(attempt)
            self._tell()
            await self._clock.sleep_ms(lease.wait_ms(self._state, self._clock.now_ms()))

    async def resign(self) -> None:
        """Give the lease back, so that another candidate need not wait for its end."""
        state = self._state
        self._state = lease.resigned(state, self._clock.now_ms())
        self._tell()
        if state.revision == 0:
            return
        try:
            await self._bucket.delete(keys.SCHEDULER_LEASE, revision=state.revision)
        except (ConflictError, UnavailableError) as error:
            # It ends by itself.
            self._log.info("lease not given back", cause=str(error))

    async def _try(self, attempt: lease.Acquire | lease.Renew) -> None:
        sent_ms = self._clock.now_ms()
        try:
            revision, found = await self._ask(attempt)
        except UnavailableError as error:
            self.away = True
            self._state = lease.failed(self._state, self._clock.now_ms())
            self._log.warning("lease out of reach", once_a_minute="lease", cause=str(error))
            return
        self.away = False
        if revision is None:
            self._state = lease.refused(self._state, found=found, now_ms=self._clock.now_ms())
        else:
            self._state = lease.written(self._state, sent_ms=sent_ms, revision=revision)

    async def _ask(
        self, attempt: lease.Acquire | lease.Renew
    ) -> tuple[int | None, lease.Found | None]:
        """The revision that was written, or None and the record that stands instead."""
        if isinstance(attempt, lease.Acquire) and (found := await self._read()):
            return None, found
        try:
            return await self._write(attempt), None
        except ConflictError:
            return None, await self._read()

    async def _write(self, attempt: lease.Acquire | lease.Renew) -> int:
        ttl_ms = self._state.times.ttl_ms
        if isinstance(attempt, lease.Acquire):
            # The fence is the revision that this very write gets; the first renewal tells it.
            record = encode(Lease(holder=self.holder, fence=0))
            return await self._bucket.create(keys.SCHEDULER_LEASE, record, ttl_ms=ttl_ms)
        record = encode(Lease(holder=self.holder, fence=attempt.fence))
        return await self._bucket.update(
            keys.SCHEDULER_LEASE, record, revision=attempt.revision, ttl_ms=ttl_ms
        )

    async def _read(self) -> lease.Found | None:
        entry = await self._bucket.get(keys.SCHEDULER_LEASE)
        if entry is None or entry.value is None:
            return None
        try:
            record = decode(entry.value, Lease)
        except WireError as error:
            # Somebody holds it, whoever that is; what can't be read ends like any lease.
            self._log.warning("lease does not parse", once_a_minute="parse", cause=str(error))
            return lease.Found("", 0, entry.revision)
        return lease.Found(record.holder, record.fence, entry.revision)

    def _tell(self) -> None:
        fence = self.fence or 0
        if fence == self._told:
            return
        self._log.info("leads" if fence else "leads no more", fence=fence or self._told)
        self._told = fence
        self._on_change()
