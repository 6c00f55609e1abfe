"""The admin API of a gateway, from outside: its view of the fleet, declarations, keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

import aiohttp

from axiom_cli.admin_client import ALL, TIMEOUT_S, AdminClient, ListAsked
from axiom_cli.event_stream import EventStream
from axiom_common.model.adapter import AdapterSpec
from axiom_common.model.ids import public_name
from axiom_common.runtime.desired_store import Outcome
from axiom_common.wire import headers, rest, views
from axiom_common.wire.decisions import ExplainPost, Explanation, WhyView
from axiom_common.wire.engine_orders import EngineOrderPost, EngineOrderView

STATUS_PATH = "/admin/v1/status"
NODES_PATH = "/admin/v1/nodes"
ENGINES_PATH = "/admin/v1/engines"
MODELS_PATH = "/admin/v1/models"
ADAPTERS_PATH = "/admin/v1/adapters"
PROFILES_PATH = "/admin/v1/profiles"
PLAN_PATH = "/admin/v1/plan"
CONFIG_PATH = "/admin/v1/config"
KEYS_PATH = "/admin/v1/keys"
WATCH_PATH = "/admin/v1/watch"
DECISIONS_PATH = "/admin/v1/decisions"
EXPLAIN_PATH = "/admin/v1/explain"
ABSENT = 0
"""As a version: it was not there."""

_EVENTS: dict[str, type[views.NodeView | views.NodeGone]] = {
    "node": views.NodeView,
    "gone": views.NodeGone,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway to ask, and the secret of the key to ask it with."""

    url: str
    secret: str | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """What every request to it carries."""
        return {} if self.secret is None else {headers.AUTHORIZATION: f"Bearer {self.secret}"}


class Admin:
    """The admin API of one gateway; the errors are those of its client."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    async def status(self) -> rest.Status:
        """Counts by region, and what is degraded."""
        return await self._client.get(STATUS_PATH, rest.Status)

    async def nodes(self, asked: ListAsked = ALL) -> tuple[views.NodeView, ...]:
        """The nodes with the plan that each last saw."""
        return await self._client.all(NODES_PATH, views.NodeView, asked)

    async def node(self, name: str) -> views.NodeView:
        """One node; NotFoundError when the gateway knows none of that name."""
        return await self._client.get(_one(NODES_PATH, name), views.NodeView)

    @asynccontextmanager
    async def watching(
        self, nodes: Sequence[str] = ()
    ) -> AsyncIterator[AsyncIterator[views.NodeView | views.NodeGone]]:
        """These nodes (none: all) as they are, then as they change, until the gateway ends it."""
        named = "&".join(f"node={quote(node, safe='')}" for node in nodes)
        path = f"{WATCH_PATH}?{named}" if named else WATCH_PATH

        async def events(
            parts: AsyncIterator[bytes],
        ) -> AsyncIterator[views.NodeView | views.NodeGone]:
            stream = EventStream()
            async for part in parts:
                for kind, data in stream.feed(part):
                    if kind in _EVENTS:
                        yield self._client.shape(path, data, _EVENTS[kind])

        async with self._client.stream(path) as parts:
            yield events(parts)

    async def engines(self, asked: ListAsked = ALL) -> tuple[views.EngineView, ...]:
        """The engines with what is resident on each."""
        return await self._client.all(ENGINES_PATH, views.EngineView, asked)

    async def engine(self, name: str) -> views.EngineView:
        """One engine; NotFoundError when the gateway knows none of that name."""
        return await self._client.get(_one(ENGINES_PATH, name), views.EngineView)

    async def order_engine(
        self, name: str, verb: str, wanted: EngineOrderPost | None, *, dry_run: bool = False
    ) -> EngineOrderView:
        """Cordon, drain or release an engine; returns once that holds at all gateways, but those
        `without`. BusyError with the code `not-everywhere`: ask again to wait on, it stands."""
        path = f"{_one(ENGINES_PATH, name)}:{verb}{'?dryRun=true' if dry_run else ''}"
        answer = await self._client.ask("POST", path, wanted)
        return self._client.shape(path, answer.body, EngineOrderView)

    async def why(self, decision_id: str) -> WhyView:
        """What is kept of one request; NotFoundError when this gateway keeps nothing of it."""
        return await self._client.get(_one(DECISIONS_PATH, decision_id), WhyView)

    async def explain(self, asked: ExplainPost) -> Explanation:
        """Where a request would go now."""
        answer = await self._client.ask("POST", EXPLAIN_PATH, asked)
        return self._client.shape(EXPLAIN_PATH, answer.body, Explanation)

    async def models(self, asked: ListAsked = ALL) -> tuple[rest.DeclaredModel, ...]:
        """The declared base models."""
        return await self._client.all(MODELS_PATH, rest.DeclaredModel, asked)

    async def adapters(self, asked: ListAsked = ALL) -> tuple[rest.Adapter, ...]:
        """The declared adapters."""
        return await self._client.all(ADAPTERS_PATH, rest.Adapter, asked)

    async def adapter(self, name: str) -> rest.Adapter:
        """One declared adapter; NotFoundError when there is none of that name."""
        return await self._client.get(_declared(ADAPTERS_PATH, name), rest.Adapter)

    async def profiles(self, asked: ListAsked = ALL) -> tuple[rest.ProfileView, ...]:
        """The profiles, those that are built in with them."""
        return await self._client.all(PROFILES_PATH, rest.ProfileView, asked)

    async def profile(self, name: str) -> rest.ProfileView:
        """One profile; NotFoundError when there is none of that name."""
        return await self._client.get(_declared(PROFILES_PATH, name), rest.ProfileView)

    async def plans(self, asked: ListAsked = ALL) -> tuple[views.NodePlanView, ...]:
        """What is planned for each node."""
        return await self._client.all(PLAN_PATH, views.NodePlanView, asked)

    async def plan(self, node: str) -> views.NodePlanView:
        """What is planned for one node; NotFoundError when nothing is."""
        return await self._client.get(_one(PLAN_PATH, node), views.NodePlanView)

    async def config(self) -> views.ConfigView:
        """What the gateway runs with."""
        return await self._client.get(CONFIG_PATH, views.ConfigView)

    async def keys(self, asked: ListAsked = ALL) -> tuple[rest.ApiKeyView, ...]:
        """The keys, without their secrets."""
        return await self._client.all(KEYS_PATH, rest.ApiKeyView, asked)

    async def key(self, name: str) -> rest.ApiKeyView:
        """One key; NotFoundError when there is none of that name."""
        return await self._client.get(_declared(KEYS_PATH, name), rest.ApiKeyView)

    async def put_key(
        self, name: str, wanted: rest.ApiKeyPut, *, version: int, dry_run: bool = False
    ) -> rest.ApiKeyView:
        """Make a key (`version` is `ABSENT`), its secret in the answer; or make the one that was
        seen at `version` like this. PreconditionError when it is not so."""
        path = _declared(KEYS_PATH, name, dry_run=dry_run)
        answer = await self._client.ask("PUT", path, wanted, _if_version(version))
        return self._client.shape(path, answer.body, rest.ApiKeyView)

    async def rotate_key(self, name: str, *, version: int) -> rest.ApiKeyView:
        """Give the key that was seen at `version` another secret, which is in the answer."""
        path = f"{_declared(KEYS_PATH, name)}:rotate"
        answer = await self._client.ask("POST", path, None, _if_version(version))
        return self._client.shape(path, answer.body, rest.ApiKeyView)

    async def withdraw(
        self, path: str, name: str, *, version: int | None, dry_run: bool
    ) -> tuple[str, ...]:
        """Withdraw one of the list at `path`: NotFoundError, and PreconditionError when it is not
        at `version` (None: at any) by now. The gateways that may go on as before."""
        seen = {} if version is None else _if_version(version)
        answer = await self._client.ask(
            "DELETE", _declared(path, name, dry_run=dry_run), None, seen
        )
        without = answer.headers.get(headers.WITHOUT)
        return tuple(without.split(", ")) if without else ()

    async def put_base_model(self, name: str, *, dry_run: bool = False) -> Outcome:
        """Declare a base model; returns once that is durable."""
        path = _declared(MODELS_PATH, name, dry_run=dry_run)
        answer = await self._client.ask("PUT", path, rest.BaseModelPut())
        return self._client.outcome(path, answer)

    async def put_adapter(
        self, spec: AdapterSpec, *, version: int | None = None, dry_run: bool = False
    ) -> tuple[Outcome, rest.Adapter]:
        """Declare an adapter, its revision left to the gateway; returns once that is durable.

        One that is there is changed only at the `version` that was seen (`ABSENT`: it was not
        there): PreconditionError when it is at another. None: PreconditionRequiredError when it is
        there and would change.
        """
        path = _declared(ADAPTERS_PATH, spec.name, dry_run=dry_run)
        wanted = rest.AdapterPut(
            base_model=spec.base_model,
            path=spec.path,
            rank=spec.rank,
            size_bytes=spec.size_bytes,
            tenant=spec.tenant,
        )
        seen = {} if version is None else _if_version(version)
        answer = await self._client.ask("PUT", path, wanted, seen)
        shape = self._client.shape(path, answer.body, rest.Adapter)
        return self._client.outcome(path, answer), shape


def _one(path: str, id_: str) -> str:
    return f"{path}/{quote(id_, safe='')}"


def _declared(path: str, name: str, *, dry_run: bool = False) -> str:
    """The path of a declared object; InvalidInputError for a name that none can have, and that
    could lead elsewhere in a path."""
    return f"{path}/{public_name(name, path='name')}{'?dryRun=true' if dry_run else ''}"


def _if_version(version: int) -> dict[str, str]:
    if version == ABSENT:
        return {headers.IF_NONE_MATCH: "*"}
    return {headers.IF_MATCH: f'"{version}"'}


@asynccontextmanager
async def admin_of(target: Target) -> AsyncIterator[Admin]:
    """The admin API of a gateway."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout, headers=target.headers) as session:
        yield Admin(AdminClient(session, target.url, keyed=target.secret is not None))
