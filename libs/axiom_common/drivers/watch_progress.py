"""What a watch was told so far, over all its tellings."""

from __future__ import annotations

from axiom_common.ports.registry import Entry


class WatchProgress:
    """Turns the tellings of single subscriptions into one story without holes.

    A telling begins with what is present. Whatever was told before and is not told again has gone
    meanwhile, and the story has to say so: deleted, or lost when the bucket began a new life.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._known_life = 0
        self._seen: set[str] | None = None
        self._life = 0
        self._begun_at = 0

    def begin(self, life: int, last_revision: int) -> None:
        """A telling begins; the bucket is in `life`, any number of its own, at `last_revision`."""
        self._seen = set()
        self._life = life
        self._begun_at = last_revision

    def take(self, entry: Entry) -> bool:
        """Note an entry; False when it tells nothing: a deletion of what was never told."""
        was_known = entry.key in self._known
        if entry.value is None:
            self._known.discard(entry.key)
            return was_known or self._seen is None
        self._known.add(entry.key)
        if self._seen is not None:
            self._seen.add(entry.key)
        return True

    def end_of_present(self) -> tuple[Entry, ...]:
        """All that is present was told; what has gone unseen, by key."""
        seen = self._seen or set()
        lost = self._life != self._known_life
        gone = tuple(
            Entry(key, None, self._begun_at, lost=lost) for key in sorted(self._known - seen)
        )
        self._known &= seen
        self._known_life = self._life
        self._seen = None
        return gone
