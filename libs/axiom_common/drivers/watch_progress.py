"""What a watch was told so far, over all its tellings: which keys, and up to which revision."""

from __future__ import annotations

from axiom_common.ports.registry import Entry


class WatchProgress:
    """Turns the tellings of single subscriptions into one story without holes.

    A telling begins with what is present. Whatever was told before and is not told again has gone
    meanwhile, and the story has to say so.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._seen: set[str] | None = None
        self._base = 0
        self._told = 0
        self._owed = 0

    def begin(self, last_revision: int) -> None:
        """A telling begins; the bucket is at `last_revision` now."""
        self._seen = set()
        self._base = self._told = self._owed = last_revision

    def take(self, entry: Entry) -> bool:
        """Note an entry; False when it tells nothing: a deletion of what was never told."""
        self._told = max(self._told, entry.revision)
        was_known = entry.key in self._known
        if entry.value is None:
            self._known.discard(entry.key)
            return was_known or self._seen is None
        self._known.add(entry.key)
        if self._seen is not None:
            self._seen.add(entry.key)
        return True

    def end_of_present(self) -> tuple[Entry, ...]:
        """All that is present was told; the deletions that were missed, by key."""
        seen = self._seen or set()
        gone = tuple(Entry(key, None, self._base) for key in sorted(self._known - seen))
        self._known &= seen
        self._seen = None
        return gone

    def complete(self, last_revision: int) -> bool:
        """Ask this from time to time: False when what the bucket had last time never came.

        False also while the present was not told to its end since last time.
        """
        complete = self._told >= self._owed and self._seen is None
        self._owed = last_revision
        return complete
