"""Keeps one lease in a bucket: the shell around `state.lease`, and the lease's only writer."""

from __future__ import annotations

from axiom_common.errors import ConflictError, UnavailableError, WireError
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.logging import Log
from axiom_common.state import lease
from axiom_common.wire.schemas import Lease, decode, encode


class LeaseKeeper:
    """One candidate for the lease under `key`.

    `holder` must be this process's own: two alike would share a lease.
    """

    def __init__(
        self,
        bucket: Bucket,
        key: str,
        *,
        holder: str,
        times: lease.LeaseTimes,
        clock: Clock,
        log: Log,
    ) -> None:
        self._bucket = bucket
        self._key = key
        self._clock = clock
        self._log = log
        self._state = lease.LeaseState(holder=holder, times=times)
        self.away = False
        """Whether the registry gave no answer to the last attempt."""

    @property
    def holder(self) -> str:
        """The name of this candidate in the lease."""
        return self._state.holder

    @property
    def fence(self) -> int | None:
        """The fence of this term while this candidate holds the lease, None otherwise."""
        holds = lease.leads(self._state, self._clock.now_ms())
        return self._state.fence if holds else None

    async def step(self) -> None:
        """Acquire or renew, if it is time."""
        attempt = lease.attempt(self._state, self._clock.now_ms())
        if attempt is not None:
            await self._try(attempt)

    async def wait(self) -> None:
        """Until the next attempt is due or the lease ends."""
        await self._clock.sleep_ms(lease.wait_ms(self._state, self._clock.now_ms()))

    def resign(self) -> int:
        """Hold it no more; the revision to give back, 0 when there is none."""
        revision = self._state.revision
        self._state = lease.resigned(self._state, self._clock.now_ms())
        return revision

    async def give_back(self, revision: int) -> None:
        """Delete the record, so that others need not wait for its end."""
        if revision == 0:
            return
        try:
            await self._bucket.delete(self._key, revision=revision)
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
            return await self._bucket.create(self._key, record, ttl_ms=ttl_ms)
        record = encode(Lease(holder=self.holder, fence=attempt.fence))
        return await self._bucket.update(
            self._key, record, revision=attempt.revision, ttl_ms=ttl_ms
        )

    async def _read(self) -> lease.Found | None:
        entry = await self._bucket.get(self._key)
        if entry is None or entry.value is None:
            return None
        try:
            record = decode(entry.value, Lease)
        except WireError as error:
            # Somebody holds it, whoever that is; what can't be read ends like any lease.
            self._log.warning("lease does not parse", once_a_minute="parse", cause=str(error))
            return lease.Found("", 0, entry.revision)
        return lease.Found(record.holder, record.fence, entry.revision)
