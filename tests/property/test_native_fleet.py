"""The compiled fleet decides as its twin does, bit for bit, through random histories."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drawn_fleets import ADAPTERS, PROFILES, drawn_query, drawn_row
from tests.fleet_parts import adapter, engine, held, query, row
from tests.prefix_index_parts import NEEDS_NATIVE

from axiom_common.model.decision import Term
from axiom_common.model.ids import BASE
from axiom_common.model.prefix import ANNOUNCED, linked
from axiom_common.policy.decided import Decided
from axiom_common.policy.fleet import Fleet, Prompt
from axiom_common.policy.fleet_twin import FleetTwin
from axiom_common.policy.profile import AXIOM, BUILT_IN, Profile
from axiom_common.runtime.native import native_fleet_or_twin, native_index_or_twin
from axiom_common.state.prefix_index import (
    ANY_TIER,
    ENGINES_MAX,
    HBM,
    SHARDS,
    PrefixIndex,
    PrefixIndexTwin,
)
from axiom_common.state.spread import ACCOUNTS_MAX

pytestmark = NEEDS_NATIVE

SEED = 7
TEXT = Random(1).randbytes(11_000)
LINKS = linked(SEED, TEXT)
TOKENS = list(accumulate(Random(2).randint(30, 90) for _ in LINKS))
ENGINES = 9
ODD = Profile(name="axiom", wait_cap_ms=90.0, weights={t: 0.3 * n for n, t in enumerate(Term)})


class Pair:
    """A fleet of each kind, and an index of each, all told the same."""

    def __init__(self) -> None:
        self.fleets: list[Fleet] = [FleetTwin(BUILT_IN), native_fleet_or_twin(BUILT_IN)]
        self.indexes: list[PrefixIndex] = [
            PrefixIndexTwin(64 * SHARDS),
            native_index_or_twin(64 * SHARDS),
        ]
        self.bookings = [0]
        self.now_ms = 0.0

    def both(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call it on both; what they agree on."""
        twins, natives = (getattr(made, name)(*arguments, **options) for made in self.fleets)
        assert natives == twins
        return twins

    def judge(self, name: str, chance: Random) -> Decided:
        """Ask both, some time with a prompt."""
        twins, natives = self.asked(name, chance)
        assert natives == twins
        assert natives.whole() == twins.whole()
        return twins  # type: ignore[no-any-return]

    def asked(self, name: str, chance: Random, **options: Any) -> Iterator[Any]:
        """What each says, some time of a prompt."""
        asked, profile = drawn_query(chance, ENGINES), chance.choice(PROFILES)
        text = TEXT[: chance.choice([0, 200, 3_000, len(TEXT)])]
        with_prompt, beyond = chance.random() < 0.5, chance.choice([0, 0, 5_000])
        for made, index in zip(self.fleets, self.indexes, strict=True):
            prompt = Prompt(index, SEED, text, beyond) if with_prompt else None
            yield getattr(made, name)(asked, profile, self.now_ms, prompt, **options)

    def announce(self, chance: Random) -> None:
        """An engine holds the text up to somewhere."""
        depth, tier = chance.randint(1, len(LINKS)), chance.choice([HBM, ANY_TIER])
        facts = b"".join(map(ANNOUNCED.pack, LINKS[:depth], TOKENS))
        where = engine(chance.randrange(ENGINES))
        for made, index in zip(self.fleets, self.indexes, strict=True):
            if (number := made.number(where)) is not None:
                index.apply(number, facts, b"", tier)

    def remove(self, chance: Random) -> None:
        where = engine(chance.randrange(ENGINES))
        for made, index in zip(self.fleets, self.indexes, strict=True):
            if (number := made.number(where)) is not None:
                index.clear(number)
            made.remove(where)

    def step(self, what: str, chance: Random) -> None:
        """One event of a history."""
        self.now_ms += chance.choice([0.0, 1.0, 30.0, 400.0, 11_000.0])
        where = chance.randrange(ENGINES)
        if what == "decide":
            self.bookings.append(self.judge("decide", chance).booking)
            self.judge("choose", chance)
        elif what == "first":
            self.both("first_token", chance.choice(self.bookings))
        elif what == "release":
            self.both("release", chance.choice(self.bookings))
        elif what == "row":
            self.both("set_row", drawn_row(chance, where))
        elif what == "remove":
            self.remove(chance)
        elif what == "peers":
            counts = {chance.choice([*ADAPTERS, BASE]): chance.randint(-1, 4) for _ in range(2)}
            self.both("set_peer_load", engine(where), counts)
        elif what == "profiles":
            own = chance.choice([AXIOM, ODD])
            self.both("set_profiles", {**BUILT_IN, own.name: own})
        elif what == "explain":
            after, limit = chance.choice(["", "n1.e0", "n5"]), chance.choice([None, 3])
            twins, natives = self.asked("explain", chance, after=after, limit=limit)
            assert natives == twins
        else:
            self.announce(chance)
        self.both("in_flight")
        self.both("in_flight_on", engine(where))


WHATS = ["decide"] * 6 + ["first", "release", "release", "row", "row", "remove", "peers"]
WHATS += ["profiles", "explain", "announce", "announce"]


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(st.sampled_from(WHATS), st.integers(0, 2**32)), min_size=20, max_size=80),
)
def test_every_step_of_a_history_gives_the_same(
    fleet_seed: int, steps: list[tuple[str, int]]
) -> None:
    chance, pair = Random(fleet_seed), Pair()
    for number in range(chance.randint(1, ENGINES)):
        pair.both("set_row", drawn_row(chance, number))
    for what, seed in steps:
        pair.step(what, Random(seed))
    assert_gone(pair)


@pytest.mark.parametrize("seed", range(4))
def test_many_engines_at_once(seed: int) -> None:
    """More rows than a vector holds, and columns that grow."""
    chance, pair = Random(seed), Pair()
    for number in range(70):
        pair.both("set_row", drawn_row(chance, number))
    for _ in range(60):
        pair.judge("decide", chance)
        pair.step("announce", chance)


def assert_gone(pair: Pair) -> None:
    """When all is released and all engines are gone, nothing is kept but what is bounded."""
    native = pair.fleets[1]
    for booking in pair.bookings:
        pair.both("release", booking)
    for number in range(ENGINES):
        pair.both("remove", engine(number))
    assert pair.both("in_flight") == {}
    # Accounts of what waiting cost keep their adapters' names; they are bounded themselves.
    assert native.names_kept <= 1 + len(ADAPTERS)
    assert native.rows <= ENGINES


def test_a_load_that_was_given_up_leaves_nothing_where_peers_wait_for_it_too() -> None:
    pair = Pair()
    pair.both("set_row", row(0))
    booking = pair.both("decide", query(adapter(1)), "axiom", 0.0).booking
    pair.both("set_peer_load", engine(0), {adapter(1): 1})
    pair.both("release", booking)
    for name in (adapter(1), adapter(2)):
        pair.both("choose", query(name), "axiom", 1.0)


def test_names_go_with_the_engines_that_had_them() -> None:
    made = native_fleet_or_twin(BUILT_IN)
    for number in range(300):
        names = tuple(held(adapter(100 * number + n)) for n in range(2))
        made.set_row(row(number % 3, residents=names, loads_allowed=False, registered=(BASE,)))
        made.set_peer_load(engine(number % 3), {adapter(number): 1})
    assert made.names_kept == 1 + 3 * 3
    for number in range(3):
        made.remove(engine(number))
    assert made.names_kept == 1
    assert made.rows == 3


def test_accounts_are_bounded() -> None:
    made = native_fleet_or_twin(BUILT_IN)
    names = [adapter(number) for number in range(ACCOUNTS_MAX + 50)]
    made.set_row(row(0, hbm_slots=len(names), residents=tuple(map(held, names))))
    for name in names:
        made.release(made.decide(query(name), "axiom", 0.0).booking)
    made.remove(engine(0))
    assert made.names_kept == 1 + ACCOUNTS_MAX


def test_a_text_of_many_megabits_is_looked_up_too() -> None:
    """Beyond what the interpreter's lock is kept for."""
    text = Random(3).randbytes(700_000)
    links = linked(SEED, text)
    facts = b"".join(map(ANNOUNCED.pack, links, range(1, len(links) + 1)))
    told = []
    indexes = PrefixIndexTwin(1 << 12), native_index_or_twin(1 << 12)
    for made, index in zip(fleets(), indexes, strict=True):
        for number in range(3):
            made.set_row(row(number))
        where = made.number(engine(1))
        assert where is not None
        index.apply(where, facts, b"", HBM)
        told.append(made.decide(query(), "axiom", 0.0, Prompt(index, SEED, text)))
    assert told[0] == told[1]
    assert told[1].engine == engine(1)
    assert told[1].matched_tokens == len(links)


def test_a_profile_that_is_not_known_is_a_key_error() -> None:
    for made in fleets():
        with pytest.raises(KeyError):
            made.choose(query(), "nobody", 0.0)


def test_an_engine_beyond_what_an_index_can_number_is_told_of_nothing() -> None:
    index = native_index_or_twin(SHARDS)
    index.apply(ENGINES_MAX - 1, ANNOUNCED.pack(LINKS[0], 60), b"", HBM)
    made = native_fleet_or_twin(BUILT_IN)
    made.set_row(row(0))
    decided = made.choose(query(), "axiom", 0.0, Prompt(index, SEED, TEXT))
    assert decided.engine == engine(0)
    assert decided.matched_tokens == 0


def fleets() -> Iterator[Fleet]:
    yield FleetTwin(BUILT_IN)
    yield native_fleet_or_twin(BUILT_IN)
