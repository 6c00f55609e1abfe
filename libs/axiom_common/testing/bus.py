"""The bus in memory: buses on one `FakeHub` hear each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from axiom_common.drivers.inbox import FAILED, PENDING_MAX, Delivery, Inbox, answer
from axiom_common.errors import AxiomError, UnavailableError
from axiom_common.ports.bus import Handler, Responder
from axiom_common.runtime.lifecycle import Owner


class FakeHub:
    """What a server is to real buses: it knows who is connected, and routes."""

    def __init__(self) -> None:
        self._routes: list[tuple[FakeBus, str, Inbox, bool]] = []

    def add(self, bus: FakeBus, subject: str, inbox: Inbox, *, responds: bool) -> None:
        """Route messages on `subject` (a filter) to `inbox` while `bus` is connected."""
        self._routes.append((bus, subject, inbox, responds))

    def remove(self, bus: FakeBus) -> None:
        """Forget all routes of a bus."""
        self._routes = [route for route in self._routes if route[0] is not bus]

    def deliver(self, delivery: Delivery) -> bool:
        """Hand over to all who listen; whether one of them will answer."""
        answered = False
        for bus, subject, inbox, responds in self._routes:
            if bus.connected and matches(subject, delivery.subject):
                inbox.put(delivery)
                answered |= responds
        return answered


class FakeBus:
    """A `Bus`. `disconnect` and `reconnect` are the faults; `errors` holds what handlers raised."""

    def __init__(
        self, owner: Owner, hub: FakeHub | None = None, *, pending_max: int = PENDING_MAX
    ) -> None:
        self.errors: list[AxiomError] = []
        self._owner = owner
        self._hub = hub or FakeHub()
        self._pending_max = pending_max
        self._inboxes: list[Inbox] = []
        self._callbacks: list[Callable[[], Awaitable[None]]] = []
        self._asked: set[asyncio.Future[bytes]] = set()
        self._connected = True

    @property
    def connected(self) -> bool:
        """Whether `disconnect` was not the last fault."""
        return self._connected

    @property
    def dropped(self) -> int:
        """Messages lost to full subscriptions."""
        return sum(inbox.dropped for inbox in self._inboxes)

    @property
    def refused(self) -> int:
        """None: the hub knows no permissions."""
        return 0

    async def publish(self, subject: str, payload: bytes) -> None:
        """Hand over to all who listen now."""
        self._check_connected()
        self._hub.deliver(Delivery(subject, payload))
        await asyncio.sleep(0)

    async def subscribe(self, subject: str, handler: Handler) -> None:
        """Call `handler` for each message."""

        async def handle(delivery: Delivery) -> None:
            await handler(delivery.subject, delivery.payload)

        inbox = self._inbox(subject, responds=False)
        self._owner.create_task(inbox.run(handle), name=f"fake subscription {subject}")

    async def respond(self, subject: str, responder: Responder, *, concurrency: int = 64) -> None:
        """Answer requests."""

        async def handle(delivery: Delivery) -> None:
            await answer(delivery, responder)

        inbox = self._inbox(subject, responds=True)
        self._owner.create_task(
            inbox.run_concurrent(handle, owner=self._owner, concurrency=concurrency),
            name=f"fake responder {subject}",
        )

    async def request(self, subject: str, payload: bytes, *, timeout_ms: float) -> bytes:
        """Ask and wait for the first answer."""
        self._check_connected()
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def reply(payload: bytes) -> None:
            if not answered.done():
                answered.set_result(payload)

        if not self._hub.deliver(Delivery(subject, payload, reply)):
            raise UnavailableError(f"nobody answers on {subject}")
        self._asked.add(answered)
        try:
            async with asyncio.timeout(timeout_ms / 1e3):
                got = await answered
        except TimeoutError as error:
            raise UnavailableError(f"no answer on {subject} in {timeout_ms:g} ms") from error
        finally:
            self._asked.discard(answered)
        if got == FAILED:
            raise UnavailableError(f"the responder on {subject} failed")
        return got

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call back in `reconnect`."""
        self._callbacks.append(callback)

    def disconnect(self) -> None:
        """Lose the hub: nothing goes out, nothing comes in, and who waits for an answer is told."""
        self._connected = False
        for answered in self._asked:
            if not answered.done():
                answered.set_exception(UnavailableError("the bus was lost"))

    async def reconnect(self) -> None:
        """Come back; what was sent meanwhile is lost."""
        self._connected = True
        for callback in self._callbacks:
            await callback()

    async def close(self) -> None:
        """End all subscriptions."""
        self._connected = False
        self._hub.remove(self)
        for inbox in self._inboxes:
            inbox.close()

    def _check_connected(self) -> None:
        if not self._connected:
            raise UnavailableError("the bus is down")

    def _inbox(self, subject: str, *, responds: bool) -> Inbox:
        inbox = Inbox(lambda _, error: self.errors.append(error), pending_max=self._pending_max)
        self._inboxes.append(inbox)
        self._hub.add(self, subject, inbox, responds=responds)
        return inbox


def matches(subject_filter: str, subject: str) -> bool:
    """Whether a subject passes a filter: `*` stands for one token, a last `>` for the rest."""
    wanted, given = subject_filter.split("."), subject.split(".")
    for position, token in enumerate(wanted):
        if token == ">":
            return position < len(given)
        if position >= len(given) or token not in ("*", given[position]):
            return False
    return len(wanted) == len(given)
