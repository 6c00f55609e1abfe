"""The desired state as this gateway follows it: for reads while the registry is away, and lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from axiom_common.errors import UnavailableError
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.runtime.desired_watch import DesiredWatch
from axiom_common.wire.desired import Declared, Stored, T

SETTLE_MS = 1_000.0
SETTLE_POLL_MS = 2.0


class KnownDesired:
    """What `watch` knows, and how old that is."""

    def __init__(self, watch: DesiredWatch, bus: Bus, clock: Clock) -> None:
        self._watch = watch
        self._bus = bus
        self._clock = clock
        self._away = False
        self._applied = 0
        self._in_touch_ms = clock.now_ms()

    @property
    def synced(self) -> bool:
        """Whether all was told once."""
        return self._watch.synced

    def names(self, kind: type[Declared]) -> Sequence[str]:
        """The names of all of a kind, sorted; a live view. UnavailableError when nothing was ever
        told."""
        self._check_synced()
        return self._watch.names(kind)

    def one(self, kind: type[T], name: str) -> Stored[T] | None:
        """One of a kind, as it is known here; None when it is not declared."""
        return self._watch.one(kind, name)

    def stored(self, kind: type[T]) -> tuple[Stored[T], ...]:
        """All of a kind, by name; UnavailableError when nothing was ever told."""
        found = (self.one(kind, name) for name in self.names(kind))
        return tuple(one for one in found if one is not None)

    def values(self, kind: type[T]) -> Iterable[T]:
        """All of a kind, in no order; a live view. UnavailableError when nothing was ever told."""
        self._check_synced()
        return self._watch.values(kind)

    def has(self, kind: type[Declared], name: str) -> bool:
        """Whether one of the kind has this name."""
        return self._watch.has(kind, name)

    def staleness_ms(self) -> float:
        """How long ago it was last in touch with the registry; 0: it is now."""
        self.look()
        in_touch = self._bus.connected and not self._away
        return 0.0 if in_touch else self._clock.now_ms() - self._in_touch_ms

    def look(self) -> None:
        """To be called again and again: note whether it is in touch."""
        if self._watch.applied != self._applied:
            self._applied, self._away = self._watch.applied, False
        if self._bus.connected and not self._away:
            self._in_touch_ms = self._clock.now_ms()

    def reached(self) -> None:
        """The registry answered."""
        self._away = False
        self.look()

    def missed(self) -> None:
        """The registry did not answer."""
        self.look()
        self._away = True

    async def settled(self, revision: int) -> None:
        """Wait until all up to this revision is known here; but not for long: it is durable."""
        deadline_ms = self._clock.now_ms() + SETTLE_MS
        while self._watch.applied < revision and self._clock.now_ms() < deadline_ms:
            await self._clock.sleep_ms(SETTLE_POLL_MS)

    def _check_synced(self) -> None:
        if not self._watch.synced:
            raise UnavailableError("what is declared is not known yet")
