"""/v1: one function a route, on raw ASGI."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable

import msgspec

from axiom_common.model.ids import BASE
from axiom_common.model.reason import Reason
from axiom_common.ports.clock import Clock
from axiom_common.ports.tracing import Span, Tracer
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_common.runtime.metrics import OTHER
from axiom_common.wire import headers
from axiom_gateway import errors, spans
from axiom_gateway.asgi import ClientGoneError, Exchange, Receive, Scope, Send
from axiom_gateway.catalog import Catalog, ModelEntry, Target
from axiom_gateway.dispatch import Dispatcher
from axiom_gateway.errors import ApiError
from axiom_gateway.job import Job
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.openai_requests import Endpoint, parse
from axiom_gateway.profile_book import ProfileBook
from axiom_gateway.settings import GatewaySettings
from axiom_gateway.v1_access import V1Access

PREFIX = "/v1/"
MODELS = "/v1/models"
LAST_WORD_S = 5.0
"""How long a client that does not read may keep its request here once it is over."""
CLIENT_GONE_STATUS = 499
"""Counted for requests whose client went away before an answer began; nobody sees it."""

_TRACEPARENT = headers.TRACEPARENT.encode()
_TRACESTATE = headers.TRACESTATE.encode()
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_ENDPOINTS = {endpoint.value: endpoint for endpoint in Endpoint}
_SPANS = {endpoint: f"POST {endpoint.value}" for endpoint in Endpoint}


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
        profiles: ProfileBook,
        new_id: Callable[[], str],
        started: asyncio.Event,
        tracer: Tracer,
        catalog_known: Callable[[], bool],
        access: V1Access,
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
        self._started = started
        self._tracer = tracer
        self._catalog_known = catalog_known
        self._access = access
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
            self._access.admit(exchange)
            if endpoint is not None and exchange.method == "POST":
                await self._generate(exchange, endpoint)
            elif exchange.method == "GET" and exchange.path == MODELS:
                await self._list_models(exchange)
            elif exchange.method == "GET" and exchange.path.startswith(MODELS + "/"):
                await self._get_model(exchange, exchange.path.removeprefix(MODELS + "/"))
            else:
                raise errors.unknown_route(exchange.method, exchange.path)
        except ApiError as error:
            await _fail(exchange, error)
            await exchange.drop_rest(self._settings.body_ms / 1e3)
        except ClientGoneError:
            exchange.status = CLIENT_GONE_STATUS
        except Exception as error:  # noqa: BLE001 - the last resort of one request; logged
            self._log.defect("request failed", error, endpoint=_label(exchange.path))
            await _fail(exchange, errors.internal())
        self._metrics.request(_label(exchange.path), exchange.status or CLIENT_GONE_STATUS)

    async def _generate(self, exchange: Exchange, endpoint: Endpoint) -> None:
        decision_id = self._new_id()
        request_id = _request_id(exchange, decision_id)
        exchange.set_header(headers.REQUEST_ID.encode(), request_id.encode())
        exchange.set_header(headers.DECISION.encode(), decision_id.encode())
        if self._draining:
            raise errors.refused(Reason.SHUTTING_DOWN)
        if len(self._under_way) >= self._settings.requests_max:
            raise self._full()
        with self._tracer.begin(
            _SPANS[endpoint],
            exchange.raw_header(_TRACEPARENT),
            exchange.raw_header(_TRACESTATE),
        ) as span:
            if span.recorded:
                spans.tell_request(
                    span, decision_id=decision_id, request_id=request_id, path=endpoint.value
                )
            try:
                await self._dispatch(exchange, endpoint, decision_id, request_id, span)
            except ApiError as error:
                spans.tell_refusal(span, error.status)
                raise
            except ClientGoneError:
                raise
            except Exception as error:
                self._log.defect(
                    "request failed",
                    error,
                    request=request_id,
                    decision=decision_id,
                    trace=span.trace_id,
                )
                spans.tell_refusal(span, errors.internal().status)
                raise errors.internal() from error

    async def _dispatch(
        self,
        exchange: Exchange,
        endpoint: Endpoint,
        decision_id: str,
        request_id: str,
        span: Span,
    ) -> None:
        job: Job | None = None
        failed: Exception | None = None
        self._under_way.add(exchange)
        try:
            async with asyncio.timeout(self._settings.body_ms / 1e3) as exchange.cut:
                arrived_ms = self._clock.now_ms()
                body = await exchange.body(self._settings.body_bytes_max, self._buffer)
                exchange.has_until(self._settings.request_limit_ms / 1e3)
                exchange.watch_client(self._owner)
                request = parse(endpoint, body)
                hold_left_ms = self._settings.hold_ms - await self._until_started()
                job = Job(
                    id=decision_id,
                    request_id=request_id,
                    request=request,
                    target=self._target(request.model, self._access.tenant(exchange)),
                    profile=self._profile(exchange),
                    exchange=exchange,
                    arrived_ms=arrived_ms,
                    hold_left_ms=hold_left_ms,
                    span=span,
                )
                await self._dispatcher.run(job)
        except TimeoutError:
            failed = self._why_cut(exchange)
            raise failed from None
        except Exception as error:
            failed = error
            raise
        finally:
            if job is not None:
                self._dispatcher.ended(job, failed)
            exchange.unwatch()
            self._under_way.discard(exchange)
            self._buffered_bytes -= exchange.buffered_bytes

    def _buffer(self, count: int) -> None:
        """So many more bytes of bodies are kept, if all bodies together may take them."""
        if self._buffered_bytes + count > self._settings.buffered_bytes_max:
            raise self._full()
        self._buffered_bytes += count

    def _full(self) -> ApiError:
        self._metrics.refusal(Reason.ALL_SATURATED)
        return errors.refused(Reason.ALL_SATURATED, "This gateway is full.")

    def _why_cut(self, exchange: Exchange) -> Exception:
        if exchange.gone:
            return ClientGoneError()
        if self._draining:
            return errors.refused(Reason.SHUTTING_DOWN)
        if not exchange.has_body:
            return errors.too_slow()
        return errors.refused(Reason.DEADLINE_EXCEEDED)

    async def _until_started(self) -> float:
        """Wait out the start of this gateway, which is bounded; how long that took, in ms."""
        if self._started.is_set():
            return 0.0
        began_ms = self._clock.now_ms()
        await self._started.wait()
        return self._clock.now_ms() - began_ms

    def _target(self, name: str, tenant: str) -> Target:
        target = self._catalog.resolve(name, tenant)
        if target is not None:
            return target
        if not self._catalog_known():
            self._metrics.refusal(Reason.NO_ENGINE)
            raise errors.refused(Reason.NO_ENGINE, "What is declared is not known yet.")
        self._metrics.refusal(Reason.UNKNOWN_MODEL)
        raise errors.unknown_model(name, [entry.name for entry in self._catalog.entries(tenant)])

    def _profile(self, exchange: Exchange) -> str:
        wanted = exchange.header(headers.PROFILE)
        if wanted is None or not self._settings.allow_profile_header:
            return self._settings.default_profile
        if wanted not in self._profiles.in_force:
            raise errors.invalid(
                f"The profile `{wanted[:64]}` does not exist. Profiles: "
                f"{', '.join(sorted(self._profiles.in_force))}.",
                param=headers.PROFILE,
            )
        return wanted

    async def _list_models(self, exchange: Exchange) -> None:
        await self._until_started()
        entries = self._catalog.entries(self._access.tenant(exchange))
        models = {"object": "list", "data": [_model(entry) for entry in entries]}
        await exchange.answer(200, msgspec.json.encode(models))

    async def _get_model(self, exchange: Exchange, name: str) -> None:
        await self._until_started()
        target = self._target(name, self._access.tenant(exchange))
        parent = None if target.adapter == BASE else target.base_model
        await exchange.answer(
            200, msgspec.json.encode(_model(ModelEntry(name=name, parent=parent)))
        )


async def _fail(exchange: Exchange, error: ApiError) -> None:
    """Tell the client, unless it does not even read what it was sent so far."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST_WORD_S):
            await exchange.fail(error)


def _label(path: str) -> str:
    if path in _ENDPOINTS:
        return path
    return MODELS if path == MODELS or path.startswith(MODELS + "/") else OTHER


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
