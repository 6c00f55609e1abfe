"""How agents' facts reach a gateway's indexes, and how they leave them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from tests.fact_parts import FactTeller, Message
from tests.facts_gateway import (
    BASE_MODEL,
    ENGINE,
    NODE,
    REGION,
    REVISION,
    TTL_MS,
    FactsGateway,
    report_of,
)
from tests.owner import TestOwner, task_owner

from axiom_common.model.ids import EngineId, NodeId, engine_id
from axiom_common.model.prefix import FactBatch, FactChanges
from axiom_common.state.fact_ledger import Reach
from axiom_common.state.fact_requests import ANSWER_MS, FIRST_MS, GIVEN_UP_MS
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.clock import FakeClock, settle
from axiom_common.wire import subjects
from axiom_common.wire.schemas import FactRequest, decode, encode
from axiom_gateway.facts_feed import SLICE_FACTS, TICK_MS, TOKENIZER_DIFFERS

OTHER = NodeId("other")


async def at_once(call: Callable[[], bool | None]) -> bool | None:
    """Long calls on the loop, after others had a turn."""
    await asyncio.sleep(0)
    return call()


class Setting(FactsGateway):
    """On fakes, and agents that tell what a test wants."""

    def __init__(self, owner: TestOwner, entries_max: int = 256 * 1024) -> None:
        self.clock = FakeClock(1000.0)
        hub = FakeHub()
        self.agents = FakeBus(owner, hub)
        bus = FakeBus(owner, hub)
        super().__init__(owner, bus, self.clock, run=at_once, entries_max=entries_max)
        self.asked: list[FactRequest] = []

    async def start(self) -> None:
        async def asked(subject: str, payload: bytes) -> None:
            self.asked.append(decode(payload, FactRequest))

        await self.agents.subscribe(subjects.node_facts_wanted(REGION, NODE), asked)
        await super().start()

    async def tell(
        self, *messages: Message, engine: EngineId = ENGINE, revision: str = REVISION
    ) -> None:
        for message in messages:
            report = report_of(message, engine=engine, revision=revision)
            await self.agents.publish(subjects.node_facts(REGION, NODE), encode(report))
        await settle()

    async def tick(self) -> None:
        """The next turn of what runs all the time."""
        await self.clock.advance(TICK_MS)


@pytest.fixture
async def setting() -> AsyncIterator[Setting]:
    async with task_owner() as owner:
        setting = Setting(owner)
        await setting.start()
        yield setting


@pytest.fixture
def teller() -> FactTeller:
    return FactTeller()


def moved(teller: FactTeller, *links: int, to: Reach = Reach.HBM) -> list[Message]:
    """One message with these links."""
    for link in links:
        teller.move(link, to)
    return teller.tell()


def many(count: int) -> FactChanges:
    """Facts of so many links, in all shards."""
    links = ((number * 0x9E3779B97F4A7C15) % 2**64 for number in range(1, 1 + count))
    return FactChanges(hbm=FactBatch.of(((link, 16) for link in links), ()))


async def test_what_an_agent_tells_can_be_looked_up_until_it_is_withdrawn(
    setting: Setting, teller: FactTeller
) -> None:
    await setting.tell(*moved(teller, 1, 2))
    assert setting.holds(1, 2, 3) == [1, 2]
    await setting.tell(*moved(teller, 1, to=Reach.NOT))
    assert setting.holds(1, 2, 3) == [2]
    assert setting.counted("facts_heard_total", kind="changes") == 2
    assert setting.asked == []


async def test_what_got_lost_is_asked_for_and_a_snapshot_mends_it(
    setting: Setting, teller: FactTeller
) -> None:
    await setting.tell(*moved(teller, 1))
    moved(teller, 2)
    lost = moved(teller, 1, to=Reach.NOT)
    assert lost
    await setting.tell(teller.stand())
    assert setting.counted("facts_lost_total") == 1
    await setting.clock.advance(FIRST_MS + TICK_MS)
    assert setting.asked == [FactRequest(asker="gw", engines=(ENGINE,))]
    await setting.tell(*moved(teller, 3, 4, 5), *teller.snapshot())
    assert setting.holds(*range(1, 6)) == [2, 3, 4, 5]
    await setting.clock.advance(2 * ANSWER_MS)
    assert len(setting.asked) == 1
    assert setting.counted("snapshots_asked_total") == 1


async def test_a_snapshot_that_others_asked_for_is_enough(
    setting: Setting, teller: FactTeller
) -> None:
    moved(teller, 1)
    await setting.tell(*moved(teller, 2))
    await setting.tell(*teller.snapshot())
    assert setting.holds(1, 2) == [1, 2]
    await setting.clock.advance(2 * ANSWER_MS)
    assert setting.asked == []


async def test_who_is_not_answered_counts_for_a_while_and_then_not(
    setting: Setting, teller: FactTeller
) -> None:
    await setting.tell(*moved(teller, 1))
    moved(teller, 2)
    await setting.tell(*moved(teller, 3))
    await setting.clock.advance(GIVEN_UP_MS - 2 * TICK_MS)
    assert setting.holds(1, 2, 3) == [1, 3]
    await setting.clock.advance(3 * TICK_MS)
    assert setting.holds(1, 2, 3) == []
    assert len(setting.asked) > 1


async def test_facts_of_an_engine_that_is_not_in_view_are_asked_for_once_it_is(
    setting: Setting, teller: FactTeller
) -> None:
    late = engine_id(NODE, "late")
    await setting.tell(*moved(teller, 1), engine=late)
    assert setting.prefixes.told_engines == 0
    setting.see(ENGINE, late)
    await setting.tell(teller.stand(), engine=late)
    await setting.clock.advance(FIRST_MS + TICK_MS)
    assert setting.asked == [FactRequest(asker="gw", engines=(late,))]


async def test_facts_of_another_tokenizer_mean_nothing_and_are_named(
    setting: Setting, teller: FactTeller
) -> None:
    await setting.tell(*moved(teller, 1))
    await setting.tell(*moved(teller, 2), revision="0000")
    await setting.tick()
    assert setting.holds(1, 2) == []
    assert setting.feed.degraded() == (TOKENIZER_DIFFERS,)
    await setting.tell(teller.stand())
    assert setting.feed.degraded() == ()
    await setting.tell(*teller.snapshot())
    assert setting.holds(1, 2) == [1, 2]


async def test_an_own_tokenizer_that_was_refused_differs_from_nobodys(
    setting: Setting, teller: FactTeller
) -> None:
    setting.see(ENGINE, base_model="refused")
    await setting.tell(*moved(teller, 1))
    assert (setting.prefixes.told_engines, setting.feed.degraded()) == (0, ())


async def test_nothing_is_known_of_an_agent_that_ended_and_what_comes_after_is_asked_for(
    setting: Setting, teller: FactTeller
) -> None:
    await setting.tell(*moved(teller, 1))
    setting.prefixes.agent_is_in(OTHER, None)
    assert setting.holds(1) == [1]
    setting.prefixes.agent_is_in(NODE, None)
    await setting.tick()
    assert setting.holds(1) == []
    assert setting.prefixes.predicts(ENGINE)
    await setting.tell(teller.stand())
    await setting.clock.advance(FIRST_MS + TICK_MS)
    assert len(setting.asked) == 1


async def test_an_agent_that_ended_is_not_asked(setting: Setting, teller: FactTeller) -> None:
    moved(teller, 1)
    await setting.tell(*moved(teller, 2))
    setting.prefixes.agent_is_in(NODE, None)
    await setting.clock.advance(FIRST_MS + TICK_MS)
    assert setting.asked == []


async def test_an_agent_that_began_anew_has_told_nothing(
    setting: Setting, teller: FactTeller
) -> None:
    await setting.tell(*moved(teller, 1))
    setting.prefixes.agent_is_in(NODE, 2)
    await setting.tick()
    assert setting.holds(1) == []
    teller.restart()
    await setting.tell(*moved(teller, 2))
    assert setting.holds(1, 2) == [1, 2]
    setting.prefixes.agent_is_in(NODE, 2)
    await setting.tick()
    assert setting.holds(1, 2) == [1, 2]


async def test_what_is_told_right_after_everything_became_void_stays(
    setting: Setting, teller: FactTeller
) -> None:
    await setting.tell(*moved(teller, 1, 2))
    setting.prefixes.agent_is_in(NODE, None)
    teller.restart()
    teller.move(1, Reach.NOT)
    await setting.tell(*teller.tell())
    assert setting.holds(1, 2) == [2]
    await setting.tick()
    assert setting.holds(1, 2) == [2]


async def test_an_engines_number_is_clean_when_another_one_gets_it(
    setting: Setting, teller: FactTeller
) -> None:
    await setting.tell(*moved(teller, 1))
    number = setting.state.number(ENGINE)
    setting.see(engine_id(NODE, "next"))
    assert setting.state.number(engine_id(NODE, "next")) == number
    assert setting.holders(1) == set()


async def test_an_engine_of_another_base_model_than_before_holds_nothing_of_either(
    setting: Setting, teller: FactTeller
) -> None:
    await setting.tell(*moved(teller, 1))
    setting.see(ENGINE, base_model="refused")
    await setting.tell(*moved(teller, 2))
    await setting.tick()
    assert setting.holders(1) == set()


async def test_a_large_message_lets_others_run_in_between(setting: Setting) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while setting.prefixes.entries < 10 * SLICE_FACTS:
            turns += setting.prefixes.entries > 0
            await asyncio.sleep(0)

    waiting = setting.owner.create_task(other(), name="other")
    await setting.tell(Message("changes", 1, 1, changes=many(10 * SLICE_FACTS)))
    await asyncio.wait_for(waiting, 10)
    assert turns >= 9


@pytest.mark.parametrize("what", ["removed", "ended", "anew"])
async def test_what_is_void_while_it_is_on_its_way_leaves_nothing(
    setting: Setting, what: str
) -> None:
    telling = setting.owner.create_task(
        setting.tell(Message("changes", 1, 1, changes=many(10 * SLICE_FACTS))), name="telling"
    )
    while not setting.prefixes.entries:
        await asyncio.sleep(0)
    if what == "removed":
        setting.see(engine_id(NODE, "next"))
    else:
        setting.prefixes.agent_is_in(NODE, None if what == "ended" else 2)
    await telling
    await setting.tick()
    assert setting.prefixes.entries == 0


@pytest.mark.parametrize(
    ("subject", "payload"),
    [
        (subjects.node_facts(REGION, NODE), b"?"),
        (
            subjects.node_facts(REGION, OTHER),
            encode(report_of(Message("stand", 1, 1))),
        ),
    ],
    ids=["garbage", "of another node"],
)
async def test_a_message_that_does_not_parse_is_counted(
    setting: Setting, subject: str, payload: bytes
) -> None:
    await setting.agents.publish(subject, payload)
    await settle()
    assert setting.counted("invalid_messages_total") == 1
    assert setting.prefixes.told_engines == 0


async def test_a_snapshot_that_does_not_fit_leaves_nothing_and_is_asked_for_seldom() -> None:
    async with task_owner() as owner:
        setting = Setting(owner, entries_max=256)
        await setting.start()
        for part in range(2):
            await setting.tell(Message("snapshot", 1, 9, part, 2, changes=many(250 + part)))
        await setting.tick()
        assert setting.prefixes.entries == 0
        assert setting.counted("facts_lost_total") == 0
        await setting.clock.advance(FIRST_MS)
        assert len(setting.asked) == 1


# Of engines that tell nothing.


def predict(setting: Setting, *links: int, engine: EngineId = ENGINE) -> None:
    setting.prefixes.predict(engine, [(link, 64 * n) for n, link in enumerate(links, 1)])


async def test_a_prediction_counts_for_a_time(setting: Setting) -> None:
    predict(setting, 1, 2)
    assert setting.holds(1, 2) == [1, 2]
    assert setting.prefixes.predicted == 2
    await setting.clock.advance(TTL_MS / 2)
    predict(setting, 1)
    await setting.clock.advance(TTL_MS / 2 + TICK_MS)
    assert setting.holds(1, 2) == [1]
    await setting.clock.advance(TTL_MS / 2)
    assert setting.holds(1, 2) == []


async def test_an_engine_is_told_of_or_predicted_never_both(
    setting: Setting, teller: FactTeller
) -> None:
    predict(setting, 1, 2)
    await setting.tell(*moved(teller, 2, 3))
    assert setting.holds(1, 2, 3) == [2, 3]
    predict(setting, 4)
    assert setting.holds(4) == []
    await setting.clock.advance(2 * TTL_MS)
    assert setting.holds(2, 3) == [2, 3]


async def test_a_prediction_ends_with_its_engine_and_when_it_is_disproved(
    setting: Setting,
) -> None:
    predict(setting, 1, 2)
    setting.prefixes.disprove(ENGINE, [2, 9])
    assert setting.holds(1, 2) == [1]
    setting.see(engine_id(NODE, "next"))
    assert setting.holders(1) == set()
    predict(setting, 5)
    assert setting.prefixes.predicted == 0


async def test_a_text_is_of_use_only_where_an_engine_may_hold_it(
    setting: Setting, teller: FactTeller
) -> None:
    assert setting.prefixes.may_match(BASE_MODEL)
    assert not setting.prefixes.may_match("another")
    await setting.tell(teller.stand())
    assert not setting.prefixes.may_match(BASE_MODEL)
    await setting.tell(*moved(teller, 1))
    assert setting.prefixes.may_match(BASE_MODEL)
