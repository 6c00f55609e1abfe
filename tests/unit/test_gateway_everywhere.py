"""Waiting until every gateway has taken over a change: what is enough, and for how long."""

from __future__ import annotations

import asyncio

import pytest
from tests.owner import TestOwner, task_owner

from axiom_common.model.ids import GatewayId
from axiom_common.testing.clock import FakeClock
from axiom_gateway.everywhere import (
    EVERYWHERE_MS,
    LISTENED_MS,
    POLL_MS,
    TRAVEL_MS,
    Everywhere,
    NotEverywhereError,
    Unconfirmed,
)

OWN, PEER, LONG_SILENT = GatewayId("own"), GatewayId("peer"), GatewayId("a-silent-one")


class Setting:
    """A gateway and a peer, with the revision that each has taken over."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.own, self.peer = 5, 5
        self.unbroken_ms = LISTENED_MS
        self.missing: tuple[GatewayId, ...] = ()
        self.everywhere = Everywhere(
            self.clock,
            gateway=OWN,
            applied=lambda: self.own,
            unconfirmed=lambda revision: (PEER,) if self.peer < revision else (),
            missing=lambda: self.missing,
            unbroken_ms=lambda: self.unbroken_ms,
        )

    def ask(self, owner: TestOwner, revision: int) -> asyncio.Task[Unconfirmed]:
        return owner.create_task(self.everywhere.everywhere(revision), name="wait")


async def test_what_all_have_is_confirmed_once_words_under_way_are_here() -> None:
    async with task_owner() as owner:
        setting = Setting()
        asked = setting.ask(owner, 5)
        await setting.clock.advance(TRAVEL_MS - 1)
        assert not asked.done()
        await setting.clock.advance(1)
        assert await asked == Unconfirmed()


async def test_who_is_silent_for_long_is_named_and_not_waited_for() -> None:
    async with task_owner() as owner:
        setting = Setting()
        setting.missing = (LONG_SILENT,)
        asked = setting.ask(owner, 5)
        await setting.clock.advance(TRAVEL_MS)
        assert await asked == Unconfirmed(missing=(LONG_SILENT,))
        setting.peer = 4
        asked = setting.ask(owner, 5)
        await setting.clock.advance(EVERYWHERE_MS + POLL_MS)
        assert (await asked).names == (LONG_SILENT, PEER)


async def test_who_speaks_first_within_that_time_is_waited_for() -> None:
    async with task_owner() as owner:
        setting = Setting()
        asked = setting.ask(owner, 5)
        await setting.clock.advance(TRAVEL_MS / 2)
        setting.peer = 0
        await setting.clock.advance(1_000)
        assert not asked.done()
        setting.peer = 5
        await setting.clock.advance(POLL_MS)
        assert await asked == Unconfirmed()


@pytest.mark.parametrize(
    ("own", "peer", "unbroken_ms", "late"),
    [
        (4, 5, LISTENED_MS, (OWN,)),
        (5, 4, LISTENED_MS, (PEER,)),
        (4, 4, LISTENED_MS, (OWN, PEER)),
        (5, 5, LISTENED_MS - 1, (OWN,)),
        (5, 5, 0.0, (OWN,)),
    ],
)
async def test_the_wait_is_bounded_and_names_who_is_late(
    own: int, peer: int, unbroken_ms: float, late: tuple[GatewayId, ...]
) -> None:
    """Who has just begun to hear, or hears nothing, does not know whom there is to wait for."""
    async with task_owner() as owner:
        setting = Setting()
        setting.own, setting.peer, setting.unbroken_ms = own, peer, unbroken_ms
        asked = setting.ask(owner, 5)
        await setting.clock.advance(EVERYWHERE_MS - POLL_MS)
        assert not asked.done()
        await setting.clock.advance(2 * POLL_MS)
        assert await asked == Unconfirmed(late)
    assert all(name in str(NotEverywhereError("it", late)) for name in late)
