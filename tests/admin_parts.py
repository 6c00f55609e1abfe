"""The admin API in process, on the registry in memory, where it can be taken away."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.routing import Mount
from tests.eventually import eventually
from tests.owner import TestOwner, task_owner
from tests.watched_nodes import watches_of

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.model.access import ApiKey, Role
from axiom_common.model.engine import NodeState
from axiom_common.model.ids import RegionId
from axiom_common.ports.registry import Bucket
from axiom_common.runtime.desired_store import DesiredStore
from axiom_common.runtime.desired_watch import DesiredWatch
from axiom_common.runtime.logging import Log
from axiom_common.testing.bus import FakeBus, FakeHub
from axiom_common.testing.journal import FakeJournal
from axiom_common.testing.registry import FakeBucket, FakeRegistry
from axiom_common.testing.shadow_cache import FakeShadowCache
from axiom_common.wire import headers, keys, rest
from axiom_gateway.admin import AdminParts, admin_app
from axiom_gateway.admin_access import Access, digest_of
from axiom_gateway.admin_seen import AdminView, SeenRegion
from axiom_gateway.app import GatewayApp
from axiom_gateway.asgi import App
from axiom_gateway.known_desired import KnownDesired
from axiom_gateway.settings import GatewaySettings

BASE_URL = "http://gateway/admin/v1"
REGION = RegionId("eu")
SECRETS = {role: f"axk-secret-of-{role}" for role in Role}
"""Of the keys that a test's API knows, one a role."""
ACCESS_KEYS = {
    role: ApiKey(name=f"key-of-{role}", role=role, digest=digest_of(secret))
    for role, secret in SECRETS.items()
}
VIEW = AdminView(
    regions={
        REGION: SeenRegion(
            nodes=1,
            engines=1,
            adapters=2,
            base_models=frozenset({"llama-3-8b"}),
            degraded=("shadow-cache-unavailable",),
            view_age_ms=120.0,
        )
    }
)


def key_of(role: Role) -> dict[str, str]:
    """The header of a request by someone with that role."""
    return {headers.AUTHORIZATION: f"Bearer {SECRETS[role]}"}


@dataclass
class Api:
    """An admin API, a client with an admin's key, and what lies beneath."""

    app: App
    client: httpx2.AsyncClient
    owner: TestOwner
    registry: FakeRegistry
    bucket: FakeBucket
    bus: FakeBus
    known: KnownDesired

    async def put(
        self, name: str, body: Any, request_headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        """Declare an adapter."""
        content = body if isinstance(body, bytes) else json.dumps(body)
        return await self.client.put(f"/adapters/{name}", content=content, headers=request_headers)

    async def change(self, name: str, body: Any) -> httpx2.Response:
        """Declare an adapter that is there another way."""
        return await self.put(name, body, {headers.IF_MATCH: "*"})

    def away(self) -> None:
        """Take the registry away, and the bus with it, as where NATS is down."""
        self.registry.disconnect()
        self.bus.disconnect()

    async def back(self) -> None:
        """Bring both back."""
        self.registry.reconnect()
        await self.bus.reconnect()


@asynccontextmanager
async def admin_api(
    view: Callable[[], AdminView] = lambda: VIEW,
    *nodes: NodeState,
    wrapped: Callable[[FakeBucket], Any] = lambda bucket: bucket,
    requests: Callable[[FakeBucket], Any] = lambda bucket: bucket,
    registry: FakeRegistry | None = None,
    more: Callable[[AdminParts], AdminParts] = lambda parts: parts,
) -> AsyncIterator[Api]:
    """The API on `registry`, or on one of its own; `wrapped` and `requests` stand between it and
    its buckets."""
    async with task_owner() as owner:
        clock = SystemClock()
        registry = registry or FakeRegistry(owner, clock)
        bucket = await registry.bucket(keys.DESIRED_BUCKET)
        seen: Bucket = wrapped(bucket)
        watch = DesiredWatch(bucket, Log("test", clock), lambda: None)
        owner.create_task(watch.run(), name="watch")
        bus = FakeBus(owner, FakeHub())
        access = Access(known=lambda: True)
        access.keys_changed({key.name: key for key in ACCESS_KEYS.values()})
        known = KnownDesired(watch, bus, clock)
        parts = AdminParts(
            store=DesiredStore(seen),
            known=known,
            access=access,
            view=view,
            watches=watches_of(*nodes),
            requests=requests(await registry.bucket(keys.request_bucket(REGION))),
        )
        app = Starlette(routes=[Mount("/admin/v1", admin_app(more(parts)))])
        await eventually(lambda: watch.synced)
        async with _client(app, key_of(Role.ADMIN)) as client:
            yield Api(app, client, owner, registry, bucket, bus, known)


def _client(app: App, given: dict[str, str]) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url=BASE_URL, headers=given)


async def described() -> dict[str, Any]:
    """What a whole gateway says of its admin API (OpenAPI)."""
    async with task_owner() as owner:
        clock = SystemClock()
        secret = SECRETS[Role.ADMIN]
        gateway = GatewayApp(
            GatewaySettings(region=REGION, gateway="gw"),
            bus=FakeBus(owner, FakeHub()),
            registry=FakeRegistry(owner, clock),
            cache=FakeShadowCache(REGION, clock),
            journal=FakeJournal(),
            clock=clock,
            nonce="nonce",
            admin_secret=secret,
        )
        app = await gateway.start(owner)
        async with _client(app, key_of(Role.ADMIN)) as client:
            answer = await client.get("/openapi.json")
        await gateway.stop()
        return dict(answer.json())


def problem(response: httpx2.Response) -> rest.Problem:
    """The problem in an answer; fails where the answer is none."""
    assert response.headers["content-type"] == rest.PROBLEM_MEDIA_TYPE
    found = rest.Problem.model_validate_json(response.content)
    assert found.status == response.status_code
    assert "Traceback" not in response.text
    return found
