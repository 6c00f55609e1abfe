"""What every `Bus` does. A subclass opens two buses that hear each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import pytest
from tests.eventually import eventually

from axiom_common.errors import ConflictError, UnavailableError
from axiom_common.ports.bus import Bus

PENDING_MAX = 10


@dataclass
class Buses:
    """Two buses whose subscriptions hold `PENDING_MAX` messages, and the faults of both."""

    one: Bus
    two: Bus
    lose: Callable[[], Awaitable[None]]
    restore: Callable[[], Awaitable[None]]


class BusSuite:
    """Inherit and implement `open`."""

    def open(self) -> AbstractAsyncContextManager[Buses]:
        """Two connected buses."""
        raise NotImplementedError

    async def test_each_subscriber_gets_each_message_in_order(self) -> None:
        async with self.open() as buses:
            heard = [Heard(), Heard()]
            await buses.one.subscribe("order.a", heard[0])
            await buses.two.subscribe("order.a", heard[1])
            await ready(buses)
            sent = [str(n).encode() for n in range(PENDING_MAX)]
            for payload in sent:
                await buses.one.publish("order.a", payload)
            await eventually(lambda: all(len(h.messages) == len(sent) for h in heard))
            assert all(h.messages == [("order.a", p) for p in sent] for h in heard)

    @pytest.mark.parametrize(
        ("subject_filter", "subjects"),
        [
            ("w.*.x", ["w.1.x", "w.2.x"]),
            ("w.>", ["w.1.x", "w.2.x", "w.1.y", "w.1"]),
            ("w.1.x", ["w.1.x"]),
            ("w.*", ["w.1"]),
        ],
    )
    async def test_a_filter_passes_what_it_says(
        self, subject_filter: str, subjects: list[str]
    ) -> None:
        async with self.open() as buses:
            heard = Heard()
            await buses.two.subscribe(subject_filter, heard)
            # Arrives behind all others, so that what must not come had its chance.
            await buses.two.subscribe("end", heard)
            await ready(buses)
            for subject in ("w.1.x", "w.2.x", "w.1.y", "w.1", "v.1.x", "end"):
                await buses.one.publish(subject, b"")
            await eventually(lambda: ("end", b"") in heard.messages)
            await eventually(lambda: len(heard.messages) > len(subjects))
            assert sorted(s for s, _ in heard.messages) == sorted([*subjects, "end"])

    async def test_a_message_that_a_handler_refuses_does_not_stop_the_next(self) -> None:
        async with self.open() as buses:
            heard = Heard(refuse=b"bad")
            await buses.two.subscribe("refuse", heard)
            await ready(buses)
            for payload in (b"bad", b"good"):
                await buses.one.publish("refuse", payload)
            await eventually(lambda: len(heard.messages) == 1)
            assert heard.messages == [("refuse", b"good")]

    async def test_a_slow_subscriber_loses_the_oldest_and_it_is_counted(self) -> None:
        async with self.open() as buses:
            heard = Heard(blocked=True)
            await buses.two.subscribe("slow", heard)
            await ready(buses)
            await buses.one.publish("slow", b"first")
            await eventually(heard.entered.is_set)
            for n in range(100):
                await buses.one.publish("slow", str(n).encode())
            await eventually(lambda: buses.two.dropped == 100 - PENDING_MAX)
            heard.release.set()
            await eventually(lambda: len(heard.messages) == 1 + PENDING_MAX)
            expected = [b"first", *(str(n).encode() for n in range(100 - PENDING_MAX, 100))]
            assert [payload for _, payload in heard.messages] == expected
            assert buses.one.dropped == 0

    async def test_a_request_gets_its_own_answer(self) -> None:
        async with self.open() as buses:

            async def echo(subject: str, payload: bytes) -> bytes:
                return subject.encode() + b" " + payload

            await buses.two.respond("echo.*", echo)
            await ready(buses)
            asked = [
                buses.one.request(f"echo.{n}", b"%d" % n, timeout_ms=2000)
                for n in range(PENDING_MAX)
            ]
            answers = await asyncio.gather(*asked)
            assert answers == [b"echo.%d %d" % (n, n) for n in range(PENDING_MAX)]

    async def test_at_most_so_many_requests_are_answered_at_a_time(self) -> None:
        async with self.open() as buses:
            release = asyncio.Event()
            under_way: list[bytes] = []
            most = 0

            async def slow(subject: str, payload: bytes) -> bytes:
                nonlocal most
                under_way.append(payload)
                most = max(most, len(under_way))
                await release.wait()
                under_way.remove(payload)
                return payload

            await buses.two.respond("slow", slow, concurrency=3)
            await ready(buses)
            async with asyncio.TaskGroup() as group:
                asked = [
                    group.create_task(buses.one.request("slow", b"%d" % n, timeout_ms=5000))
                    for n in range(8)
                ]
                await eventually(lambda: len(under_way) == 3)
                release.set()
            assert [task.result() for task in asked] == [b"%d" % n for n in range(8)]
            assert most == 3

    async def test_nobody_to_ask_is_told_at_once(self) -> None:
        async with self.open() as buses:
            async with asyncio.timeout(2):
                with pytest.raises(UnavailableError, match="nobody"):
                    await buses.one.request("nobody", b"", timeout_ms=60_000)

    async def test_silence_ends_with_the_time_given(self) -> None:
        async with self.open() as buses:

            async def silent(subject: str, payload: bytes) -> bytes:
                return await asyncio.Future[bytes]()

            await buses.two.respond("silent", silent)
            await ready(buses)
            async with asyncio.timeout(2):
                with pytest.raises(UnavailableError, match="50 ms"):
                    await buses.one.request("silent", b"", timeout_ms=50)

    async def test_a_responder_that_fails_is_told_at_once_and_goes_on(self) -> None:
        async with self.open() as buses:

            async def picky(subject: str, payload: bytes) -> bytes:
                if payload == b"bad":
                    raise ConflictError("this one not")
                return payload

            await buses.two.respond("picky", picky)
            await ready(buses)
            async with asyncio.timeout(2):
                with pytest.raises(UnavailableError, match="failed"):
                    await buses.one.request("picky", b"bad", timeout_ms=60_000)
            assert await buses.one.request("picky", b"good", timeout_ms=2000) == b"good"

    async def test_a_request_under_way_ends_with_the_connection(self) -> None:
        async with self.open() as buses:
            heard = asyncio.Event()

            async def silent(subject: str, payload: bytes) -> bytes:
                heard.set()
                return await asyncio.Future[bytes]()

            await buses.two.respond("silent", silent)
            await ready(buses)

            async def lose() -> None:
                await eventually(heard.is_set)
                await buses.lose()

            async with asyncio.timeout(2):
                outcome, _ = await asyncio.gather(
                    buses.one.request("silent", b"", timeout_ms=60_000),
                    lose(),
                    return_exceptions=True,
                )
            assert isinstance(outcome, UnavailableError)

    async def test_all_goes_on_after_a_loss(self) -> None:
        async with self.open() as buses:
            heard, late, told = Heard(), Heard(), Told()

            async def echo(subject: str, payload: bytes) -> bytes:
                return payload

            await buses.two.subscribe("on", heard)
            await buses.two.respond("echo", echo)
            buses.two.on_reconnect(told)
            await ready(buses)
            assert told.count == 0
            await buses.lose()
            await eventually(lambda: not (buses.one.connected or buses.two.connected))
            with pytest.raises(UnavailableError):
                await buses.one.publish("on", b"lost")
            with pytest.raises(UnavailableError):
                await buses.one.request("echo", b"lost", timeout_ms=1000)
            await buses.two.subscribe("late", late)
            await buses.restore()
            await eventually(lambda: buses.one.connected and told.count == 1)
            await buses.one.publish("on", b"on")
            await buses.one.publish("late", b"late")
            await eventually(lambda: heard.messages and late.messages)
            assert (heard.messages, late.messages) == ([("on", b"on")], [("late", b"late")])
            assert await buses.one.request("echo", b"again", timeout_ms=2000) == b"again"


class Heard:
    """A handler that keeps what it got. `blocked` holds it in its first message."""

    def __init__(self, *, blocked: bool = False, refuse: bytes | None = None) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self._refuse = refuse
        if not blocked:
            self.release.set()

    async def __call__(self, subject: str, payload: bytes) -> None:
        self.entered.set()
        await self.release.wait()
        if payload == self._refuse:
            raise ConflictError("this one not")
        self.messages.append((subject, payload))


class Told:
    """A callback that counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1


async def ready(buses: Buses) -> None:
    """Wait until the server knows all subscriptions made so far: it handles one bus in order."""

    async def answer(subject: str, payload: bytes) -> bytes:
        return b"here"

    await buses.one.respond("ready.one", answer)
    await buses.two.respond("ready.two", answer)
    for subject in ("ready.one", "ready.two"):
        for asker in (buses.one, buses.two):
            await eventually_answered(asker, subject)


async def eventually_answered(bus: Bus, subject: str) -> None:
    """Ask until somebody answers."""
    for _ in range(500):
        try:
            await bus.request(subject, b"", timeout_ms=1000)
        except UnavailableError:
            await asyncio.sleep(0.01)
        else:
            return
    pytest.fail(f"nobody answers on {subject}")
