"""Orders of engines over REST: cordon, drain, release.

    POST /engines/{engine}:cordon    no new request goes there; adapters stay at home
    POST /engines/{engine}:drain     and adapters' homes move elsewhere
    POST /engines/{engine}:release   as it was

An order is acknowledged once it is durable and no gateway of the region sends anything new to the
engine. Who asks again, after an answer that some gateway did not confirm it, waits on. A release is
acknowledged once it is durable. Gateways that nobody waits for, as they fell silent long ago, are
named in the answer.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from axiom_common.errors import NotFoundError
from axiom_common.model.access import Role
from axiom_common.model.engine_order import EngineOrder, OrderKind
from axiom_common.model.ids import EngineId, GatewayId, RegionId
from axiom_common.ports.clock import Clock
from axiom_common.runtime.desired_store import WHATEVER, DesiredStore, IfVersion
from axiom_common.wire import headers
from axiom_common.wire.desired import Stored
from axiom_common.wire.engine_orders import EngineOrderPost, EngineOrderView, EngineReleasePost
from axiom_gateway.admin_access import Needs
from axiom_gateway.admin_bodies import may_take, parsed_if_any
from axiom_gateway.admin_objects import TooManyError
from axiom_gateway.admin_parameters import engine_in_path
from axiom_gateway.admin_problems import AdminError, NotThereError
from axiom_gateway.admin_writes import Write, WriteAsked, etag_of
from axiom_gateway.engine_facts import EngineFacts, serves_alone
from axiom_gateway.everywhere import TRAVEL_MS, Everywhere, NotEverywhereError
from axiom_gateway.known_desired import KnownDesired
from axiom_gateway.state import GatewayState

ORDERS_MAX = 4_096


class LastEngineError(AdminError):
    """Without this engine requests of its base model would be refused."""

    code = "last-engine"
    status = HTTPStatus.CONFLICT


class OrderReplacedError(AdminError):
    """Somebody ordered otherwise while this order waited for its acknowledgement."""

    code = "order-replaced"
    status = HTTPStatus.CONFLICT


class OrderDesk:
    """What the routes do, for the engines of one region."""

    def __init__(
        self,
        *,
        region: RegionId,
        clock: Clock,
        state: GatewayState,
        store: DesiredStore,
        known: KnownDesired,
        everywhere: Everywhere,
    ) -> None:
        self._region = region
        self._clock = clock
        self._state = state
        self._store = store
        self._known = known
        self._everywhere = everywhere

    async def order(
        self, engine: EngineId, kind: OrderKind, wanted: EngineOrderPost, asked: Write
    ) -> EngineOrderView:
        """Order it, and wait until that holds everywhere; NotFoundError, LastEngineError,
        TooManyError, NotEverywhereError (it stands all the same), OrderReplacedError."""
        facts = self._facts(engine)
        if not wanted.force and serves_alone(facts, self._state.engines.values()):
            raise LastEngineError(
                f"{engine} is the last that serves {facts.state.base_model!r}, whose requests "
                "would be refused: with force it is done",
                path="engine",
            )

        def edit(current: EngineOrder | None) -> EngineOrder:
            if current is None and len(self._known.names(EngineOrder)) >= ORDERS_MAX:
                raise TooManyError(
                    f"there are {ORDERS_MAX} orders already: release some", path="engine"
                )
            note = current.note if current is not None else ""
            note = note if wanted.note is None else wanted.note
            return EngineOrder(region=self._region, engine=engine, kind=kind, note=note)

        written = await self._store.change(
            EngineOrder,
            self._name(engine),
            edit,
            if_version=_version_of(asked),
            dry_run=asked.dry_run,
        )
        without = () if asked.dry_run else await self._acknowledge(written.stored)
        return self._view(engine, written.stored, without)

    async def release(self, engine: EngineId, asked: Write) -> EngineOrderView:
        """Withdraw its order; NotFoundError when neither the order nor the engine is known."""
        try:
            revision = await self._store.delete(
                EngineOrder,
                self._name(engine),
                if_version=asked.if_version,
                dry_run=asked.dry_run,
            )
        except NotFoundError:
            self._facts(engine)
        else:
            if not asked.dry_run:
                await self._known.settled(revision)
        return self._view(engine, None, () if asked.dry_run else self._everywhere.missing())

    async def _acknowledge(self, order: Stored[EngineOrder]) -> tuple[GatewayId, ...]:
        """Return when no gateway sends anything new to the engine, but for these."""
        unconfirmed = await self._everywhere.everywhere(order.version)
        stands = self._known.one(EngineOrder, order.value.name)
        gone = stands is None and self._everywhere.gateway not in unconfirmed.late
        if gone or (stands is not None and _replaces(stands, order)):
            raise OrderReplacedError(
                f"{order.value.engine} was given another order meanwhile", path="engine"
            )
        if unconfirmed.late:
            what = f"the {order.value.kind} of {order.value.engine}"
            raise NotEverywhereError(what, unconfirmed.late)
        # What peers sent last is at the engine by then.
        await self._clock.sleep_ms(TRAVEL_MS)
        return unconfirmed.missing

    def _facts(self, engine: EngineId) -> EngineFacts:
        facts = self._state.engines.get(engine)
        if facts is None:
            raise NotFoundError(
                f"no engine {engine!r} is known in region {self._region!r}: the gateways of "
                "another region know theirs"
            )
        return facts

    def _name(self, engine: EngineId) -> str:
        return EngineOrder(region=self._region, engine=engine, kind=OrderKind.CORDON).name

    def _view(
        self,
        engine: EngineId,
        order: Stored[EngineOrder] | None,
        without: tuple[GatewayId, ...],
    ) -> EngineOrderView:
        use = self._state.shown.use(engine)
        return EngineOrderView(
            region=self._region,
            engine=engine,
            order=order.value.kind if order else None,
            note=order.value.note if order else None,
            version=order.version if order else None,
            in_flight=use.in_flight,
            idle=use.idle,
            without=without,
        )


def add_engine_orders(router: APIRouter, desk: OrderDesk) -> None:
    """Add the verbs of engines."""
    needs: list[Any] = [Depends(Needs(Role.OPERATOR))]
    for kind in OrderKind:
        _add_order(router, desk, kind, needs)

    @router.post(
        "/engines/{engine}:release",
        dependencies=needs,
        tags=["engines"],
        openapi_extra=may_take(EngineReleasePost),
    )
    async def release(engine: str, request: Request, asked: WriteAsked) -> EngineOrderView:
        await parsed_if_any(request, EngineReleasePost)
        return await desk.release(engine_in_path(engine), asked)

    @router.post("/engines/{engine}:{verb}", dependencies=needs, include_in_schema=False)
    async def other(engine: str, verb: str) -> None:
        del engine
        raise NotThereError(f"engines have no verb {verb!r}: cordon, drain, release", path="verb")


def _add_order(router: APIRouter, desk: OrderDesk, kind: OrderKind, needs: list[Any]) -> None:
    @router.post(
        f"/engines/{{engine}}:{kind}",
        name=kind,
        dependencies=needs,
        tags=["engines"],
        openapi_extra=may_take(EngineOrderPost),
    )
    async def order(
        engine: str, request: Request, asked: WriteAsked, response: Response
    ) -> EngineOrderView:
        wanted = await parsed_if_any(request, EngineOrderPost)
        view = await desk.order(engine_in_path(engine), kind, wanted, asked)
        response.headers[headers.ETAG] = etag_of(view.version or 0)
        return view


def _replaces(stands: Stored[EngineOrder], order: Stored[EngineOrder]) -> bool:
    return stands.version > order.version and stands.value != order.value


def _version_of(asked: Write) -> IfVersion:
    return WHATEVER if asked.if_version is None else asked.if_version
