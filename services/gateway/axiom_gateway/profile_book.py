"""The profiles of this gateway by name: those that are built in, and those that people declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from axiom_common.policy.profile import BUILT_IN, Profile

WITHDRAWN_MAX = 64
"""A request under way decides again with what it began with, if so many have not gone since."""


class ProfileBook(Mapping[str, Profile]):
    """All that a decision may name: those in force, and lately withdrawn ones. A live view."""

    def __init__(self) -> None:
        self.in_force: Mapping[str, Profile] = BUILT_IN
        """What a request may ask for."""
        self._withdrawn: dict[str, Profile] = {}

    def declared(self, profiles: Mapping[str, Profile]) -> bool:
        """These are declared now; whether that changes anything. A name that is built in keeps its
        meaning."""
        before, self.in_force = self.in_force, {**profiles, **BUILT_IN}
        if before == self.in_force:
            return False
        gone = {name: known for name, known in before.items() if name not in self.in_force}
        kept = {n: p for n, p in self._withdrawn.items() if n not in self.in_force}
        self._withdrawn = dict(list({**kept, **gone}.items())[-WITHDRAWN_MAX:])
        return True

    def __getitem__(self, name: str) -> Profile:
        found = self.in_force.get(name)
        return found if found is not None else self._withdrawn[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.in_force
        yield from self._withdrawn

    def __len__(self) -> int:
        return len(self.in_force) + len(self._withdrawn)
