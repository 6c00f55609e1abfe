"""The agent's place in the order of all that its node ever told: taken at the start, then watched.

Who writes the node's key gets a higher revision than all before, and that is its incarnation. So a
key that somebody else wrote later means that another agent runs under this name, and this one is
told by nobody any more. A key that is gone, or older than this agent's, means that the registry
lost what it had: it takes a new incarnation, because others may have lost this one as well.
"""

from __future__ import annotations

from collections.abc import Callable

from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.ports.clock import Clock
from axiom_common.ports.registry import Bucket, Registry
from axiom_common.runtime.logging import Log
from axiom_common.wire import keys

LOOK_MS = 1_000.0
RETRY_MS = 250.0


class Incarnation:
    """`life` differs between any two starts of any agents. `on_taken` gets each incarnation."""

    def __init__(
        self,
        region: RegionId,
        node: NodeId,
        life: str,
        registry: Registry,
        clock: Clock,
        log: Log,
        on_taken: Callable[[int], None],
    ) -> None:
        self.registry_away = False
        self._bucket_name = keys.incarnation_bucket(region)
        self._node = node
        self._life = life
        self._registry = registry
        self._clock = clock
        self._log = log
        self._on_taken = on_taken
        self._own = 0

    async def hold(self) -> str:
        """Take one and keep it. Returns the life of another agent that took the node's name."""
        bucket = await self._registry.bucket(self._bucket_name, lasting=True)
        while True:
            try:
                other = await self._look(bucket)
                self.registry_away = False
            except UnavailableError as error:
                other = None
                self.registry_away = True
                self._log.warning("registry away", once_a_minute="registry", cause=str(error))
            if other is not None:
                return other
            await self._clock.sleep_ms(RETRY_MS if self.registry_away else LOOK_MS)

    async def _look(self, bucket: Bucket) -> str | None:
        """Take an incarnation where there is none to keep; the life of who has taken over."""
        entry = await bucket.get(self._node) if self._own else None
        if entry is not None:
            life = (entry.value or b"").decode(errors="replace")
            if life == self._life:
                return None
            if entry.revision > self._own:
                return life
        self._own = await bucket.put(self._node, self._life.encode())
        self._log.info("incarnation", incarnation=self._own)
        self._on_taken(self._own)
        return None
