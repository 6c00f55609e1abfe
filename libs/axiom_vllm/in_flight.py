"""Counts requests in flight by adapter, and keeps what the agent was not told yet."""

from __future__ import annotations

from collections.abc import Callable

from axiom_vllm.messages import REQUESTS, Message

BASE = ""
"""Stands for the base model among adapter names."""
NAME_CHARS_MAX = 256
"""A longer name is no adapter's that anybody could place."""


class InFlight:
    """`on_change` is called at the first change since the last message."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._counts: dict[str, int] = {}
        self._changes: dict[str, list[int]] = {}

    def of(self, name: str) -> int:
        """Requests for `name` that have begun and not ended."""
        return self._counts.get(name, 0)

    def start(self, name: str) -> None:
        """A request has come whole."""
        self._counts[name] = self._counts.get(name, 0) + 1
        self._change(name)[0] += 1

    def end(self, name: str, *, aborted: bool) -> None:
        """Its answer is out, or its client gone."""
        left = self._counts[name] - 1
        if left:
            self._counts[name] = left
        else:
            del self._counts[name]
        self._change(name)[2 if aborted else 1] += 1

    def message(self, *, whole: bool) -> Message:
        """What changed since the last message; `whole` adds all other adapters in flight."""
        names = self._counts.keys() | self._changes.keys() if whole else self._changes.keys()
        adapters = {name: self._entry(name) for name in sorted(names)}
        self._changes = {}
        return {"kind": REQUESTS, "whole": whole, "adapters": adapters}

    def counts(self) -> Message:
        """The whole without the changes, which stay to be told."""
        adapters = {
            name: {"in_flight": count, "started": 0, "finished": 0, "aborted": 0}
            for name, count in sorted(self._counts.items())
        }
        return {"kind": REQUESTS, "whole": True, "adapters": adapters}

    def _change(self, name: str) -> list[int]:
        if not self._changes:
            self._on_change()
        return self._changes.setdefault(name, [0, 0, 0])

    def _entry(self, name: str) -> dict[str, int]:
        started, finished, aborted = self._changes.get(name, (0, 0, 0))
        return {
            "in_flight": self.of(name),
            "started": started,
            "finished": finished,
            "aborted": aborted,
        }
