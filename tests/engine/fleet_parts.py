"""What the test of a whole node with real engines is made of: the truth as engines tell it, the
view as a reader of reports has it, and how far one is behind the other."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from axiom_common.drivers.vllm_extension_fold import ExtensionFold
from axiom_common.drivers.vllm_extension_messages import DATAGRAM_BYTES_MAX, read_datagram
from axiom_common.model.adapter import AdapterState
from axiom_common.model.engine import EngineState
from axiom_common.model.ids import EngineAdapter
from axiom_common.ports.engine_extension import EngineWord
from axiom_common.state.engine_lru import EngineLru

Copies = tuple[tuple[EngineAdapter, AdapterState], ...]
"""Named adapters with their tier, least recently used first."""
HELD = (AdapterState.RESIDENT, AdapterState.HOST, AdapterState.DRAINING)


def unix_ms() -> float:
    """Now, as engines stamp their messages."""
    return time.time() * 1e3


def copies_of(word: EngineWord) -> Copies:
    """What an engine's word says, without copies that have no name."""
    residency, registered = word.residency, word.registered or {}
    in_hbm = set(residency.hbm)
    return tuple(
        (name, AdapterState.RESIDENT if name in in_hbm else AdapterState.HOST)
        for name in residency.host
        if name in registered
    )


def copies_in(lru: EngineLru) -> Copies:
    """What a replay takes the engine to hold."""
    return tuple(
        (copy.adapter, AdapterState.RESIDENT if copy.in_hbm else AdapterState.HOST)
        for copy in lru.copies
        if copy.named
    )


def copies_told(engine: EngineState) -> Copies:
    """What reports say."""
    return tuple((r.adapter, r.state) for r in engine.residents if r.state in HELD)


def own_word(url: str) -> Copies:
    """What the engine answers when it is asked."""
    with urllib.request.urlopen(f"{url}/axiom/v1/state", timeout=30) as answer:
        body = answer.read()
    assert json.loads(body)["supported"], body
    fold = ExtensionFold()
    fold.hear_state(body, 0.0)
    word = fold.word(0.0)
    assert word is not None
    return copies_of(word)


class Tap:
    """Hears all that one engine tells; `on_truth` gets what it holds and when that was told."""

    def __init__(self, path: Path, on_truth: Callable[[Copies, float], None]) -> None:
        self.fold = ExtensionFold()
        self._on_truth = on_truth
        self._last: Copies | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(path))
        asyncio.get_running_loop().add_reader(self._socket, self._read)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _read(self) -> None:
        while True:
            try:
                datagram = self._socket.recv(DATAGRAM_BYTES_MAX)
            except BlockingIOError:
                return
            self.fold.hear(datagram, 0.0)
            word = self.fold.word(0.0)
            if word is None or word.registered is None:
                continue
            copies = copies_of(word)
            if copies != self._last:
                self._last = copies
                self._on_truth(copies, read_datagram(datagram).at_ms)


@dataclass(slots=True)
class Lags:
    """How long after each change of an engine's truth the view had it, or a later one. `off` while
    nobody could follow: the agent or the engine is dead, or has just come back."""

    off: bool = True
    done: list[float] = field(default_factory=list)
    _last: Hashable = None
    _shown: Hashable = None
    _open: deque[tuple[Hashable, float]] = field(default_factory=deque)

    def truth(self, held: Hashable, at_ms: float) -> None:
        """The engine holds this from now on."""
        if not self.off and held != self._last:
            self._open.append((held, at_ms))
            if held == self._shown:
                # There and back again before the view had moved: it is right as it is.
                self._close(len(self._open), at_ms)
        self._last = held

    def view(self, shown: Hashable, now_ms: float) -> None:
        """The view shows this now."""
        self._shown = shown
        for number, (held, _) in enumerate(self._open, 1):
            if held == shown:
                self._close(number, now_ms)
                return

    def _close(self, count: int, now_ms: float) -> None:
        for _ in range(count):
            _, at_ms = self._open.popleft()
            self.done.append(max(0.0, now_ms - at_ms))

    def taken(self) -> list[float]:
        """All so far, in ms; from here on it counts anew."""
        done, self.done = self.done, []
        return done

    def switch(self, *, off: bool) -> None:
        """Begin anew, or end."""
        self.off = off
        self._open.clear()


def quantile(values: Iterable[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(slots=True)
class Errors:
    """How often a replay was wrong at quiet points."""

    points: int = 0
    wrong_points: int = 0
    wrong_orders: int = 0
    adapters: int = 0
    wrong_adapters: int = 0

    def compare(self, truth: Copies, guess: Copies) -> None:
        """One quiet point of one engine."""
        held, guessed = dict(truth), dict(guess)
        names = held.keys() | guessed.keys()
        wrong = sum(held.get(name) != guessed.get(name) for name in names)
        self.points += 1
        self.adapters += len(names)
        self.wrong_adapters += wrong
        self.wrong_points += wrong > 0
        self.wrong_orders += wrong == 0 and truth != guess
