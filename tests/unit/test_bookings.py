"""Bookings: what is held until when, and that it all goes back."""

from __future__ import annotations

import pytest
from tests.fleet_parts import adapter, engine

from axiom_common.model.ids import BASE
from axiom_common.state.bookings import NO_LOAD_MS, Bookings, EngineBooks

E0, E1 = engine(0), engine(1)
A, B = adapter(1), adapter(2)


def test_a_booking_holds_tokens_and_load_until_the_first_token() -> None:
    bookings = Bookings()
    one = bookings.book(E0, A, tokens=100, ready_at_ms=50.0)
    assert one != 0
    books = bookings.on(E0)
    assert (books.requests, books.tokens, books.adapters[A].ready_at_ms) == (1, 100, 50.0)
    assert bookings.first_token(one) == (E0, A)
    assert (books.requests, books.tokens, books.adapters[A].ready_at_ms) == (1, 0, NO_LOAD_MS)
    assert bookings.release(one) == (E0, A)
    assert bookings.on(E0) == EngineBooks()


def test_release_is_idempotent_and_needs_no_first_token() -> None:
    bookings = Bookings()
    one = bookings.book(E0, A, tokens=7, ready_at_ms=None)
    two = bookings.book(E0, BASE, tokens=5, ready_at_ms=None)
    bookings.first_token(one)
    bookings.first_token(one)
    assert bookings.on(E0).tokens == 5
    assert bookings.release(one) is not None
    assert bookings.release(one) is None
    assert bookings.first_token(one) is None
    assert bookings.on(E0).requests == 1
    bookings.release(two)
    assert bookings.on(E0) == EngineBooks()
    assert bookings.in_flight() == {}


def test_a_joined_load_keeps_its_end_and_ends_with_the_first_token_of_anyone() -> None:
    bookings = Bookings()
    bookings.book(E0, A, tokens=0, ready_at_ms=80.0)
    joined = bookings.book(E0, A, tokens=0, ready_at_ms=None)
    assert bookings.on(E0).adapters[A].ready_at_ms == 80.0
    bookings.first_token(joined)
    assert bookings.on(E0).adapters[A].ready_at_ms == NO_LOAD_MS


def test_the_vector_has_no_zeros() -> None:
    bookings = Bookings()
    one = bookings.book(E0, A, tokens=0, ready_at_ms=None)
    bookings.book(E0, A, tokens=0, ready_at_ms=None)
    bookings.book(E0, BASE, tokens=0, ready_at_ms=None)
    bookings.book(E1, A, tokens=0, ready_at_ms=None)
    assert bookings.in_flight() == {(E0, A): 2, (E0, BASE): 1, (E1, A): 1}
    bookings.release(one)
    assert bookings.in_flight()[E0, A] == 1


@pytest.mark.parametrize("unknown", [0, -1, 999])
def test_unknown_bookings_change_nothing(unknown: int) -> None:
    bookings = Bookings()
    bookings.book(E0, A, tokens=10, ready_at_ms=None)
    assert bookings.release(unknown) is None
    assert bookings.first_token(unknown) is None
    assert bookings.on(E0).tokens == 10
