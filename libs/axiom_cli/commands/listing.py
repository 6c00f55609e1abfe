"""How commands read a whole list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from axiom_cli.admin import Admin, Target, admin_of
from axiom_cli.admin_client import ListAsked
from axiom_cli.output import counting

T = TypeVar("T")


async def listed(
    target: Target,
    what: str,
    read: Callable[[Admin, ListAsked], Awaitable[T]],
    *,
    filters: Sequence[str] | None,
    sort: str | None,
) -> T:
    """All that fits, page by page, counted on the way as so many `what`."""
    async with admin_of(target) as admin:
        with counting(what) as on_page:
            asked = ListAsked(filters=tuple(filters or ()), sort=sort, on_page=on_page)
            return await read(admin, asked)
