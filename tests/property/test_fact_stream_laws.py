"""Laws of facts over a bus that loses, reorders and repeats: whatever happened, a gateway comes to
what the agent holds, and never credits what it was not told."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, note
from hypothesis import strategies as st
from tests.fact_parts import FactHearer, FactTeller, Message

from axiom_common.state.fact_ledger import Reach

LINKS = range(1, 8)

MOVES = st.tuples(
    st.sampled_from(["move", "change"]), st.sampled_from(LINKS), st.sampled_from(Reach)
)
BUS = st.tuples(
    st.sampled_from(["lose", "swap", "repeat", "deliver", "deliver", "deliver"]),
    st.integers(0, 5),
    st.integers(1, 5),
)
OTHERS = st.sampled_from(
    ["tell", "stand", "snapshot", "snapshot", "clear", "agent", "gateway", "died"]
).map(lambda what: (what, 0, 0))
STEPS = st.lists(st.one_of(MOVES, MOVES, OTHERS, BUS), min_size=15, max_size=60)


@dataclass
class World:
    teller: FactTeller = field(default_factory=FactTeller)
    hearer: FactHearer = field(default_factory=FactHearer)
    bus: list[Message] = field(default_factory=list)
    told: dict[tuple[int, int], dict[int, Reach]] = field(default_factory=lambda: {(1, 0): {}})
    """What held at each number of each incarnation."""

    def step(self, what: str, one: int, two: int) -> None:
        match what:
            case "move":
                self.teller.move(one, Reach(two))
            case "change":
                self.teller.move(one, Reach(two))
                self.tell()
            case "tell":
                self.tell()
            case "stand":
                self.bus.append(self.teller.stand())
            case "snapshot":
                self.tell()
                self.bus += self.teller.snapshot()
            case "clear":
                self.teller.clear()
            case "agent":
                self.teller.restart()
                self.told[self.teller.incarnation, 0] = {}
            case "gateway":
                self.hearer = FactHearer()
            case "died":
                for deed in self.hearer.stream.lost():
                    self.hearer.do(deed, self.teller.stand())
            case _ if self.bus:
                self._bus(what, one % len(self.bus), two)

    def _bus(self, what: str, at: int, count: int) -> None:
        if what == "lose":
            del self.bus[at]
        elif what == "swap":
            self.bus[0], self.bus[at] = self.bus[at], self.bus[0]
        elif what == "repeat":
            self.bus.insert(0, self.bus[at])
        else:
            self.deliver(count)

    def deliver(self, count: int | None = None) -> None:
        heard, self.bus = self.bus[:count], self.bus[len(self.bus[:count]) :]
        for message in heard:
            note(f"{message}")
            self.hearer.hear(message)
        if self.hearer.stream.lacks and not self.hearer.stream.arriving:
            self.tell()
            self.bus += self.teller.snapshot()

    def tell(self) -> None:
        self.bus += self.teller.tell()
        self.told[self.teller.incarnation, self.teller.seq] = self.teller.holds

    def settle(self) -> None:
        """The agent stands; the gateway asks while it lacks something, and nothing gets lost."""
        self.deliver()
        self.tell()
        self.bus.append(self.teller.stand())
        self.deliver()
        if self.hearer.stream.lacks:
            self.bus = self.teller.snapshot()
            self.deliver()
        assert not self.hearer.stream.lacks


@given(STEPS)
def test_after_anything_the_gateway_comes_to_what_the_agent_holds(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    for step in steps:
        note(f"{step}")
        world.step(*step)
    world.settle()
    assert world.hearer.holds(LINKS) == world.teller.holds


@given(STEPS)
def test_a_gateway_that_lacks_nothing_holds_what_the_agent_told_up_to_that_number(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    for step in steps:
        note(f"{step}")
        world.step(*step)
        stream = world.hearer.stream
        if stream.incarnation is not None and stream.whole:
            assert world.hearer.holds(LINKS) == world.told[stream.incarnation, stream.reached]


@given(STEPS)
def test_no_more_is_credited_than_was_told_since_the_agent_began(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    for step in steps:
        note(f"{step}")
        world.step(*step)
        most: dict[int, Reach] = {}
        for (incarnation, _), told in world.told.items():
            if incarnation == world.hearer.stream.incarnation:
                most = {x: max(most.get(x, Reach.NOT), told.get(x, Reach.NOT)) for x in LINKS}
        held = world.hearer.holds(LINKS)
        assert all(reach <= most.get(link, Reach.NOT) for link, reach in held.items())
