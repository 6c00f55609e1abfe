"""Whether the views at the end are the truth: the gateway's, and the shadow cache."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec

from axiom_cli.admin import NODES_PATH
from axiom_cli.bench import publisher
from axiom_cli.bench.published_nodes import Truth
from axiom_cli.bench.telemetry_region import (
    ENGINE,
    EXTENSION,
    GATEWAY,
    HBM_SLOTS,
    REGION,
    TELEMETRY,
    TelemetryRegion,
)
from axiom_cli.bench.view_client import SeenView
from axiom_cli.stack.servers import NATS
from axiom_common.drivers.redis_shadow_cache import RedisShadowCache
from axiom_common.errors import AxiomError, UnavailableError
from axiom_common.model.ids import RegionId
from axiom_common.wire.rest import PAGE_MAX
from axiom_common.wire.schemas import NodeRecord, decode

TRUTH_TIMEOUT_S = 30.0
POLL_S = 0.25
SHOWN = 3
SLOW_CONSUMER = "Slow Consumer"
COUNTED = ("dropped_messages", "invalid_messages")


class DiffersError(AxiomError):
    """What is seen is not what is."""

    code = "view-differs"


class DroppedError(AxiomError):
    """Messages were lost."""

    code = "messages-dropped"


class _Nodes(msgspec.Struct, frozen=True):
    items: list[SeenView]
    next: str | None


@dataclass(slots=True)
class Loaded:
    """The names loaded at each node that runs, oldest first, those that are still registered."""

    names: defaultdict[str, deque[str]] = field(default_factory=lambda: defaultdict(deque))
    _counts: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def count(self, node: str) -> int:
        """A number that no name of the node has had."""
        self._counts[node] += 1
        return self._counts[node]


async def check_source(
    region: TelemetryRegion, source: str, session: aiohttp.ClientSession
) -> None:
    """UnavailableError when agents do not know residency in the way that is to be measured."""
    wanted = "extension" if source == EXTENSION else "metrics"
    for node in region.engine_urls:
        view = await _json(session, f"{region.gateway.url}{NODES_PATH}/{node}")
        sources = {r["source"] for e in view["engines"] for r in e["residents"]}
        if sources != {wanted}:
            raise UnavailableError(f"{node} knows its adapters by {sources}, not by {wanted}")


async def check_truth(
    region: TelemetryRegion, loaded: Loaded, session: aiohttp.ClientSession
) -> None:
    """Let changes end, then wait until both views are right; DiffersError says where they are
    not."""
    truth = await _published(region) if region.published else {}
    cache = RedisShadowCache(region.redis_url, RegionId(REGION))
    deadline = asyncio.get_running_loop().time() + TRUTH_TIMEOUT_S
    try:
        while True:
            wrong = differences(truth, loaded, "the gateway", await _gateways(region, session))
            wrong += differences(truth, loaded, "the shadow cache", await _cached(cache))
            if not wrong:
                return
            if asyncio.get_running_loop().time() > deadline:
                raise DiffersError(f"{len(wrong)} wrong: {'; '.join(wrong[:SHOWN])}")
            await asyncio.sleep(POLL_S)
    finally:
        await cache.close()


async def _published(region: TelemetryRegion) -> dict[str, Truth]:
    (region.folder / publisher.QUIET).touch()
    path = region.folder / publisher.TRUTH
    for _ in range(int(TRUTH_TIMEOUT_S / POLL_S)):
        await asyncio.sleep(POLL_S)
        if path.exists():
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Truth])
    raise UnavailableError(f"the publisher did not become quiet within {TRUTH_TIMEOUT_S} s")


def differences(
    truth: Mapping[str, Truth], loaded: Loaded, where: str, seen: Mapping[str, Truth]
) -> list[str]:
    """Which nodes are not as they are, said for people. Of those that run, the youngest names are
    in the slots."""
    wrong = [
        f"{node} in {where}" for node, residents in truth.items() if seen.get(node) != residents
    ]
    for node, names in loaded.names.items():
        residents = seen.get(node, {}).get(f"{node}.{ENGINE}", [])
        in_slots = [adapter for adapter, state in residents if state == "resident"]
        if sorted(in_slots) != sorted(list(names)[-HBM_SLOTS:]):
            wrong.append(f"{node} in {where}: {in_slots}")
    return wrong


async def _gateways(region: TelemetryRegion, session: aiohttp.ClientSession) -> dict[str, Truth]:
    found: dict[str, Truth] = {}
    cursor: str | None = ""
    while cursor is not None:
        asked = {"limit": str(PAGE_MAX)} | ({"cursor": cursor} if cursor else {})
        async with session.get(f"{region.gateway.url}{NODES_PATH}", params=asked) as response:
            seen = msgspec.json.decode(await response.read(), type=_Nodes)
        found |= {view.node: view.residents() for view in seen.items}
        cursor = seen.next
    return found


async def _cached(cache: RedisShadowCache) -> dict[str, Truth]:
    states = [decode(record, NodeRecord).state for record in await cache.read_all()]
    return {
        state.node: {
            e.engine: [[r.adapter, r.state.value] for r in e.residents] for e in state.engines
        }
        for state in states
    }


async def check_nothing_dropped(region: TelemetryRegion, session: aiohttp.ClientSession) -> None:
    """DroppedError when a part lost a message or could not read one, or NATS took none."""
    lost = []
    for part in (GATEWAY, TELEMETRY):
        async with session.get(region.metrics_url(part)) as response:
            lost += losses(part, await response.text())
    if region.published and (refused := region.sent().refused):
        lost.append(f"publisher: {refused} messages that NATS did not take")
    if SLOW_CONSUMER in (region.folder / f"{NATS.name}.log").read_text(errors="replace"):
        lost.append("NATS cut off a slow consumer")
    if lost:
        raise DroppedError("; ".join(lost))


def losses(part: str, page: str) -> list[str]:
    """What a part's metrics tell of messages that it lost; UnavailableError when they do not."""
    found = []
    for name in COUNTED:
        metric = f"axiom_{part}_{name}_total"
        lines = [line.split() for line in page.splitlines() if line.startswith(metric)]
        if len(lines) != 1:
            raise UnavailableError(f"{part} has no {metric}")
        ((_, value),) = lines
        if float(value):
            found.append(f"{part}: {float(value):.0f} {name.replace('_', ' ')}")
    return found


async def _json(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as response:
        return await response.json()
