"""Ski rental: waiting pays for the next engine."""

from __future__ import annotations

from tests.fleet_parts import adapter

from axiom_common.state.spread import ACCOUNTS_MAX, FORGET_MS, Spread

A, B = adapter(1), adapter(2)


def test_waits_add_up_until_a_load_clears_them() -> None:
    spread = Spread()
    assert spread.waited_ms(A, 0.0) == 0.0
    spread.pay(A, 30.0, 0.0)
    spread.pay(A, 12.0, 100.0)
    spread.pay(B, 5.0, 100.0)
    assert spread.waited_ms(A, 100.0) == 42.0
    assert spread.waited_ms(B, 100.0) == 5.0
    spread.clear(A)
    spread.clear(A)
    assert spread.waited_ms(A, 100.0) == 0.0


def test_an_old_account_starts_anew() -> None:
    spread = Spread()
    spread.pay(A, 30.0, 0.0)
    assert spread.waited_ms(A, FORGET_MS) == 30.0
    assert spread.waited_ms(A, FORGET_MS + 1.0) == 0.0
    spread.pay(A, 7.0, FORGET_MS + 1.0)
    assert spread.waited_ms(A, FORGET_MS + 1.0) == 7.0


def test_accounts_are_bounded_and_the_oldest_goes() -> None:
    spread = Spread()
    for i in range(ACCOUNTS_MAX):
        spread.pay(adapter(i), 1.0, 0.0)
    spread.pay(adapter(0), 1.0, 0.0)
    spread.pay(adapter(ACCOUNTS_MAX), 1.0, 0.0)
    assert spread.waited_ms(adapter(0), 0.0) == 2.0
    assert spread.waited_ms(adapter(1), 0.0) == 0.0
    assert spread.waited_ms(adapter(ACCOUNTS_MAX), 0.0) == 1.0
