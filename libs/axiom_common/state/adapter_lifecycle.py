"""The life of one adapter on one engine.

              accepted           started           loaded              pushed out
    absent ------------> fetching ------> loading ---------> resident <-----------> host
      ^                     ^                | load failed      |     seen in HBM    |
      |                     +--- failed <----+                  |                    |
      |                   (back-off)                            +---> draining <-----+
      | slot lost                                                        | unload started
      +---------------------------------------------------- unloading <--+

`fetching`: the agent took the load on and the engine has not got it yet. `loading`: the engine is
at it. `resident`: in a slot of HBM; `host`: in host RAM only. `draining`: its name is to go, held
or not, and somebody may still use it. `unloading`: the name is gone; the state lasts until the copy
loses its slot.
`failed`: the last load failed; not tried again before `retry_at_ms`. Seen on the engine under its
name, an adapter is `resident` or `host` again whatever it was, unless it is fetching, loading
or draining.

An event that makes no sense in a state leaves it as it is: what engines tell may come late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from axiom_common.model.adapter import AdapterState
from axiom_common.model.reason import Reason

RETRY_FIRST_MS = 1_000.0
RETRY_MAX_MS = 60_000.0
"""A load that failed is tried again after 1 s, then after twice as long each time, to a minute."""

_DOUBLINGS_MAX = 16


class Event(StrEnum):
    """What happens to an adapter on an engine."""

    ACCEPTED = "accepted"
    STARTED = "started"
    LOADED = "loaded"
    LOAD_FAILED = "load-failed"
    WITHDRAWN = "withdrawn"
    UNLOAD_WANTED = "unload-wanted"
    UNLOAD_STARTED = "unload-started"
    UNLOAD_FAILED = "unload-failed"
    KEPT = "kept"
    SEEN_IN_HBM = "seen-in-hbm"
    SEEN_IN_HOST = "seen-in-host"
    NOT_SEEN = "not-seen"


_S = AdapterState
TRANSITIONS: dict[Event, dict[AdapterState, AdapterState]] = {
    Event.ACCEPTED: dict.fromkeys((_S.ABSENT, _S.HOST, _S.UNLOADING, _S.FAILED), _S.FETCHING),
    Event.STARTED: {_S.FETCHING: _S.LOADING},
    Event.LOADED: {_S.LOADING: _S.RESIDENT},
    Event.LOAD_FAILED: {_S.LOADING: _S.FAILED},
    Event.WITHDRAWN: dict.fromkeys((_S.FETCHING, _S.LOADING), _S.ABSENT),
    Event.UNLOAD_WANTED: dict.fromkeys((_S.ABSENT, _S.RESIDENT, _S.HOST), _S.DRAINING),
    Event.UNLOAD_STARTED: dict.fromkeys(
        (_S.ABSENT, _S.HOST, _S.RESIDENT, _S.DRAINING), _S.UNLOADING
    ),
    Event.UNLOAD_FAILED: {_S.UNLOADING: _S.DRAINING},
    Event.KEPT: {_S.DRAINING: _S.HOST},
    Event.SEEN_IN_HBM: dict.fromkeys((_S.ABSENT, _S.HOST, _S.UNLOADING, _S.FAILED), _S.RESIDENT),
    Event.SEEN_IN_HOST: dict.fromkeys((_S.ABSENT, _S.RESIDENT, _S.UNLOADING, _S.FAILED), _S.HOST),
    Event.NOT_SEEN: dict.fromkeys((_S.HOST, _S.RESIDENT, _S.UNLOADING), _S.ABSENT),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterLife:
    """One adapter on one engine, in `state` since `since_ms`.

    `failures` counts loads that failed since the last success, `reason` says why the last one did;
    both are forgotten when the adapter is held again.
    """

    state: AdapterState = AdapterState.ABSENT
    since_ms: float = 0.0
    failures: int = 0
    reason: Reason | None = None
    retry_at_ms: float = 0.0

    def retry_in_ms(self, now_ms: float) -> float:
        """How long no load is to be tried, 0 when one may."""
        if self.state is not AdapterState.FAILED:
            return 0.0
        return max(0.0, self.retry_at_ms - now_ms)

    @property
    def on_its_way(self) -> bool:
        """True while a load waits or runs: another request for it joins."""
        return self.state in (AdapterState.FETCHING, AdapterState.LOADING)


def step(
    life: AdapterLife, event: Event, now_ms: float, *, reason: Reason | None = None
) -> AdapterLife:
    """The adapter after `event`. `reason` belongs to LOAD_FAILED."""
    state = TRANSITIONS[event].get(life.state)
    if state is None or (state is life.state and state is AdapterState.ABSENT):
        return life
    fresh = AdapterLife(state=state, since_ms=now_ms)
    if event is Event.LOAD_FAILED:
        wait_ms = min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** min(life.failures, _DOUBLINGS_MAX))
        return replace(
            fresh, failures=life.failures + 1, reason=reason, retry_at_ms=now_ms + wait_ms
        )
    if fresh.on_its_way:
        return replace(fresh, failures=life.failures)
    return fresh
