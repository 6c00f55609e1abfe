"""/v1: one function a route, on raw ASGI."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping

import msgspec

from axiom_common.model.ids import BASE
from axiom_common.model.reason import Reason
from axiom_common.model.tenant import DEFAULT_TENANT, Tenant
from axiom_common.ports.clock import Clock
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_common.runtime.metrics import OTHER
from axiom_common.wire import headers
from axiom_gateway import errors
from axiom_gateway.asgi import ClientGoneError, Exchange, Receive, Scope, Send
from axiom_gateway.catalog import Catalog, ModelEntry
from axiom_gateway.dispatch import Dispatcher, Job
from axiom_gateway.errors import ApiError
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.openai_requests import Endpoint, ParsedRequest, parse
from axiom_gateway.settings import GatewaySettings

PREFIX = "/v1/"
MODELS = "/v1/models"
CLIENT_GONE_STATUS = 499
"""Counted for requests whose client went away before an answer began; nobody sees it."""

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_ENDPOINTS = {endpoint.value: endpoint for endpoint in Endpoint}


class V1:
    """The OpenAI-compatible API. `new_id` yields ids that no other request has."""

    def __init__(
        self,
        *,
        settings: GatewaySettings,
        clock: Clock,
        owner: Owner,
        log: Log,
        catalog: Catalog,
        dispatcher: Dispatcher,
        metrics: GatewayMetrics,
        profiles: Mapping[str, object],
        new_id: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._owner = owner
        self._log = log
        self._catalog = catalog
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._profiles = profiles
        self._new_id = new_id
        self._under_way: set[Exchange] = set()
        self._buffered_bytes = 0
        self._draining = False

    @property
    def under_way(self) -> int:
        """Requests being served."""
        return len(self._under_way)

    def drain(self) -> None:
        """Take no new request from now on."""
        self._draining = True

    def cut_all(self) -> None:
        """End what is still under way, with an error to its client."""
        for exchange in self._under_way:
            exchange.end_now()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        exchange = Exchange(scope, receive, send)
        endpoint = _ENDPOINTS.get(exchange.path)
        try:
            if endpoint is not None and exchange.method == "POST":
                await self._generate(exchange, endpoint)
            elif exchange.method == "GET" and exchange.path == MODELS:
                await self._list_models(exchange)
            elif exchange.method == "GET" and exchange.path.startswith(MODELS + "/"):
                await self._get_model(exchange, exchange.path.removeprefix(MODELS + "/"))
            else:
                raise errors.unknown_route(exchange.method, exchange.path)
        except ApiError as error:
            await exchange.fail(error)
        except ClientGoneError:
            exchange.status = CLIENT_GONE_STATUS
        except Exception:  # noqa: BLE001 - the last resort of one request; logged whole
            self._log.exception("request failed", path=exchange.path)
            await exchange.fail(errors.internal())
        self._metrics.request(_label(exchange.path), exchange.status or CLIENT_GONE_STATUS)

    async def _generate(self, exchange: Exchange, endpoint: Endpoint) -> None:
        arrived_ms = self._clock.now_ms()
        decision_id = self._new_id()
        request_id = _request_id(exchange, decision_id)
        exchange.set_header(headers.REQUEST_ID.encode(), request_id.encode())
        exchange.set_header(headers.DECISION.encode(), decision_id.encode())
        if self._draining:
            raise errors.refused(Reason.SHUTTING_DOWN)
        if len(self._under_way) >= self._settings.requests_max:
            self._metrics.refusal(Reason.ALL_SATURATED)
            raise errors.refused(Reason.ALL_SATURATED, "This gateway is full.")
        self._under_way.add(exchange)
        try:
            request = parse(endpoint, await self._body(exchange))
            job = self._job(exchange, request, decision_id, request_id, arrived_ms)
            await self._run(job)
        finally:
            self._under_way.discard(exchange)
            self._buffered_bytes -= exchange.buffered_bytes

    async def _body(self, exchange: Exchange) -> bytes:
        """Read the body, bounded in size, in time, and in what all bodies take together."""

        def take(count: int) -> None:
            if self._buffered_bytes + count > self._settings.buffered_bytes_max:
                self._metrics.refusal(Reason.ALL_SATURATED)
                raise errors.refused(Reason.ALL_SATURATED, "This gateway is full.")
            self._buffered_bytes += count
            exchange.buffered_bytes += count

        try:
            async with asyncio.timeout(self._settings.body_ms / 1e3):
                return await exchange.body(self._settings.body_bytes_max, take)
        except TimeoutError:
            raise errors.too_slow() from None

    def _job(
        self,
        exchange: Exchange,
        request: ParsedRequest,
        decision_id: str,
        request_id: str,
        arrived_ms: float,
    ) -> Job:
        tenant = _tenant(exchange)
        target = self._catalog.resolve(request.model, tenant)
        if target is None:
            self._metrics.refusal(Reason.UNKNOWN_MODEL)
            known = [entry.name for entry in self._catalog.entries(tenant)]
            raise errors.unknown_model(request.model, known)
        return Job(
            id=decision_id,
            request_id=request_id,
            request=request,
            target=target,
            profile=self._profile(exchange),
            exchange=exchange,
            arrived_ms=arrived_ms,
            hold_left_ms=self._settings.hold_ms,
        )

    async def _run(self, job: Job) -> None:
        """Carry it through, until it is done, its client goes, or its time is up."""
        exchange = job.exchange
        watcher = self._owner.create_task(exchange.watch_client(), name=f"client of {job.id}")
        try:
            async with asyncio.timeout(self._settings.request_limit_ms / 1e3) as exchange.cut:
                await self._dispatcher.run(job)
        except TimeoutError:
            if exchange.gone:
                raise ClientGoneError from None
            if self._draining:
                raise errors.refused(Reason.SHUTTING_DOWN) from None
            raise errors.refused(Reason.DEADLINE_EXCEEDED) from None
        finally:
            watcher.cancel()

    def _profile(self, exchange: Exchange) -> str:
        wanted = exchange.header(headers.PROFILE)
        if wanted is None or not self._settings.allow_profile_header:
            return self._settings.default_profile
        if wanted not in self._profiles:
            raise errors.invalid(
                f"The profile `{wanted[:64]}` does not exist. Profiles: "
                f"{', '.join(sorted(self._profiles))}.",
                param=headers.PROFILE,
            )
        return wanted

    async def _list_models(self, exchange: Exchange) -> None:
        entries = self._catalog.entries(_tenant(exchange))
        models = {"object": "list", "data": [_model(entry) for entry in entries]}
        await exchange.answer(200, msgspec.json.encode(models))

    async def _get_model(self, exchange: Exchange, name: str) -> None:
        tenant = _tenant(exchange)
        target = self._catalog.resolve(name, tenant)
        if target is None:
            known = [entry.name for entry in self._catalog.entries(tenant)]
            raise errors.unknown_model(name, known)
        parent = None if target.adapter == BASE else target.base_model
        await exchange.answer(
            200, msgspec.json.encode(_model(ModelEntry(name=name, parent=parent)))
        )


def _label(path: str) -> str:
    if path in _ENDPOINTS:
        return path
    return MODELS if path == MODELS or path.startswith(MODELS + "/") else OTHER


def _tenant(exchange: Exchange) -> Tenant:
    """Who asks. Keys are not there yet: everybody is the default tenant."""
    del exchange
    return DEFAULT_TENANT


def _request_id(exchange: Exchange, otherwise: str) -> str:
    given = exchange.header(headers.REQUEST_ID)
    return given if given is not None and _REQUEST_ID.fullmatch(given) else otherwise


def _model(entry: ModelEntry) -> dict[str, object]:
    """OpenAI's shape with vLLM's two fields. `created` is 0: a name has no date of its own."""
    return {
        "id": entry.name,
        "object": "model",
        "created": 0,
        "owned_by": "axiom",
        "root": entry.name,
        "parent": entry.parent,
    }
