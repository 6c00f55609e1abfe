"""Leadership by a lease: a record with a time to live that only its holder may renew.

    follower --acquire written--> leader --renew written--> leader
       ^                            |
       +--- lapsed, or taken -------+

The machine decides what to attempt; a shell carries it out and tells the outcome. Times are the
candidate's own monotonic clock. The server starts to count `ttl_ms` when a write arrives, the
candidate when it was sent, and ends `margin_ms` earlier still. So a leader has stepped down before
the server can let anybody else in, however long an answer takes, as long as the two clocks' rates
differ by less than margin / ttl. The fence is the revision of the write that won the lease: the
registry's revisions only grow, so each new holder has a higher one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from axiom_common.errors import InvalidInputError

NEVER_MS = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """How a lease is kept. `retry_ms` paces a follower, `renew_ms` a leader."""

    ttl_ms: float
    margin_ms: float
    renew_ms: float
    retry_ms: float

    def __post_init__(self) -> None:
        if not 0 < self.margin_ms < self.ttl_ms:
            raise InvalidInputError("margin_ms must lie between 0 and ttl_ms", path="margin_ms")
        if not 0 < self.renew_ms < self.ttl_ms - self.margin_ms:
            raise InvalidInputError("renew_ms must be below ttl_ms - margin_ms", path="renew_ms")
        if self.retry_ms <= 0:
            raise InvalidInputError("retry_ms must be above 0", path="retry_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseState:
    """One candidate. `revision` 0: it holds no record that it knows of."""

    holder: str
    times: LeaseTimes
    fence: int = 0
    revision: int = 0
    valid_until_ms: float = NEVER_MS
    next_attempt_ms: float = NEVER_MS


@dataclass(frozen=True, slots=True)
class Acquire:
    """Create the record, with its time to live."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Write the record again over `revision`."""

    revision: int
    fence: int


@dataclass(frozen=True, slots=True)
class Found:
    """The record as it stands in the registry."""

    holder: str
    fence: int
    revision: int


def leads(state: LeaseState, now_ms: float) -> bool:
    """Whether this candidate may act as the leader at this moment."""
    return state.revision > 0 and now_ms < state.valid_until_ms


def attempt(state: LeaseState, now_ms: float) -> Acquire | Renew | None:
    """What to try now, if it is time. A lapsed holder renews: its record may still stand."""
    if now_ms < state.next_attempt_ms:
        return None
    return Renew(state.revision, state.fence) if state.revision else Acquire()


def written(state: LeaseState, *, sent_ms: float, revision: int) -> LeaseState:
    """The attempt that was sent at `sent_ms` was written as `revision`."""
    return replace(
        state,
        fence=state.fence or revision,
        revision=revision,
        valid_until_ms=sent_ms + state.times.ttl_ms - state.times.margin_ms,
        next_attempt_ms=sent_ms + state.times.renew_ms,
    )


def refused(state: LeaseState, *, found: Found | None, now_ms: float) -> LeaseState:
    """Compare-and-set failed; `found` is the record as read afterwards, None when there is none.

    An own record under an unknown revision is a write whose answer was lost. It is taken over by
    writing again, and grants nothing before that.
    """
    if found is not None and found.holder == state.holder:
        return replace(
            state,
            fence=found.fence or found.revision,
            revision=found.revision,
            next_attempt_ms=now_ms,
        )
    return LeaseState(
        holder=state.holder,
        times=state.times,
        next_attempt_ms=now_ms if found is None else now_ms + state.times.retry_ms,
    )


def failed(state: LeaseState, now_ms: float) -> LeaseState:
    """No answer: whether it was written is unknown. Leadership goes on only to its old end."""
    return replace(state, next_attempt_ms=now_ms + state.times.retry_ms)


def resigned(state: LeaseState, now_ms: float) -> LeaseState:
    """Step down at once, e.g. after the record was given back or a higher fence was seen."""
    return LeaseState(
        holder=state.holder,
        times=state.times,
        next_attempt_ms=now_ms + state.times.retry_ms,
    )


def wait_ms(state: LeaseState, now_ms: float) -> float:
    """How long until the next attempt is due or leadership ends, whichever is first."""
    due = state.next_attempt_ms
    if leads(state, now_ms):
        due = min(due, state.valid_until_ms)
    return max(0.0, due - now_ms)
