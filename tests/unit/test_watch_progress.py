"""The story of a watch over several tellings: no hole, nothing twice, and lost is not deleted."""

from __future__ import annotations

from axiom_common.drivers.watch_progress import WatchProgress
from axiom_common.ports.registry import Entry


def told(progress: WatchProgress, *keys: str, life: int = 1, at: int = 10) -> tuple[Entry, ...]:
    """One telling with `keys` present; what it says has gone."""
    progress.begin(life, at)
    for key in keys:
        assert progress.take(Entry(key, b"", 1))
    return progress.end_of_present()


def test_a_first_telling_misses_nothing() -> None:
    assert told(WatchProgress(), "a", "b") == ()


def test_what_is_not_told_again_was_deleted_meanwhile() -> None:
    progress = WatchProgress()
    told(progress, "a", "b", "c")
    assert told(progress, "b", at=20) == (Entry("a", None, 20), Entry("c", None, 20))
    assert told(progress, "b") == ()


def test_in_a_new_life_it_was_lost() -> None:
    progress = WatchProgress()
    told(progress, "a", "b")
    assert told(progress, "b", life=2, at=20) == (Entry("a", None, 20, lost=True),)
    assert told(progress, life=2, at=30) == (Entry("b", None, 30),)


def test_a_telling_that_broke_off_does_not_turn_lost_into_deleted() -> None:
    progress = WatchProgress()
    told(progress, "a")
    progress.begin(2, 20)
    assert told(progress, life=2, at=30) == (Entry("a", None, 30, lost=True),)


def test_a_deletion_is_told_once_and_only_of_what_was_told() -> None:
    progress = WatchProgress()
    progress.begin(1, 10)
    assert not progress.take(Entry("never", None, 5))
    progress.take(Entry("a", b"", 6))
    assert progress.take(Entry("a", None, 7))
    assert progress.end_of_present() == ()
    assert told(progress) == ()
