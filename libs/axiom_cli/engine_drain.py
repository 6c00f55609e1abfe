"""An engine's order from outside: until it holds everywhere, and until the engine is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from axiom_cli.admin import Admin
from axiom_cli.admin_client import BusyError, NoAnswerError
from axiom_common.errors import NotFoundError, UnavailableError
from axiom_common.wire.engine_orders import EngineOrderPost, EngineOrderView
from axiom_common.wire.views import EngineView

POLL_S = 0.25
NOT_EVERYWHERE = "not-everywhere"

Tell = Callable[[str], None]


class NotIdleError(UnavailableError):
    """The order stands, but the engine is not idle yet."""

    code = "not-idle"


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time on the loop's clock, in s."""

    at_s: float

    @classmethod
    def within(cls, seconds: float) -> Deadline:
        """In so many seconds."""
        return cls(asyncio.get_running_loop().time() + seconds)

    @property
    def left_s(self) -> float:
        """How long until then; 0 once it is over."""
        return max(0.0, self.at_s - asyncio.get_running_loop().time())


async def ordered(
    admin: Admin, engine: str, verb: str, wanted: EngineOrderPost, until: Deadline, tell: Tell
) -> EngineOrderView:
    """Order it, and ask again for as long as some gateway has not confirmed it; the error that says
    which, when the time is over."""
    while True:
        try:
            return await admin.order_engine(engine, verb, wanted)
        except BusyError as error:
            if error.code != NOT_EVERYWHERE or until.left_s <= error.retry_after_s:
                raise
            tell(str(error))
            await asyncio.sleep(error.retry_after_s)


async def until_idle(admin: Admin, engine: str, until: Deadline, tell: Tell) -> EngineView | None:
    """Wait until nothing is in flight; the engine as it is then, None when it has left the region.
    NotIdleError says what is still there when the time is over. A gateway that is away for a moment
    is asked again."""
    last = "its gateway gave no answer"
    while True:
        try:
            seen = await admin.engine(engine)
        except NotFoundError:
            return None
        except (NoAnswerError, BusyError) as error:
            last = str(error)
        else:
            if seen.order is None:
                raise NotIdleError(f"{engine} was released meanwhile")
            if seen.idle:
                return seen
            last = _still(seen)
        tell(f"{engine}: {last}")
        if not until.left_s:
            raise NotIdleError(f"{engine} is not idle: {last}. The order stands")
        await asyncio.sleep(min(POLL_S, until.left_s))


def _still(seen: EngineView) -> str:
    """Why it is not idle."""
    if seen.in_flight:
        return f"{seen.in_flight} in flight"
    if seen.idle is None:
        return "none in flight, and its agent has not told of it since"
    own = seen.running + seen.waiting
    return f"no gateway has a request there, but it reports {own} (sent by others, or ending)"
