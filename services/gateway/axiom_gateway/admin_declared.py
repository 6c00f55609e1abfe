"""The kinds of declared objects that requests name: base models, adapters, profiles."""

from __future__ import annotations

from collections.abc import Callable, Collection
from http import HTTPStatus
from typing import Any

from axiom_common.model.access import Role
from axiom_common.model.adapter import AdapterSpec, BaseModelSpec
from axiom_common.policy.profile import BUILT_IN, Profile
from axiom_common.wire import rest
from axiom_common.wire.desired import Stored
from axiom_gateway.admin_objects import Kind
from axiom_gateway.admin_problems import AdminError
from axiom_gateway.known_desired import KnownDesired

BASE_MODELS_MAX = 1_000
ADAPTERS_MAX = 100_000
PROFILES_MAX = 64


class InUseError(AdminError):
    """Others that are declared refer to it."""

    code = "in-use"
    status = HTTPStatus.CONFLICT


def base_models(known: KnownDesired) -> Kind[BaseModelSpec]:
    """`/models`. One that adapters are of stays, as far as they are known here."""

    def value(name: str, body: Any, _: BaseModelSpec | None) -> BaseModelSpec:
        assert isinstance(body, rest.BaseModelPut)
        return body.to_spec(name)

    def shape(stored: Stored[BaseModelSpec], staleness_ms: float) -> rest.DeclaredModel:
        return rest.DeclaredModel.of(stored, staleness_ms=staleness_ms)

    def guard(name: str, wanted: BaseModelSpec | None) -> None:
        if wanted is not None:
            return
        of_it = [one.name for one in known.values(AdapterSpec) if one.base_model == name]
        if of_it and known.has(BaseModelSpec, name):
            raise InUseError(
                f"{len(of_it)} adapters are of {name!r}, as {min(of_it)!r} is: delete them first",
                path="name",
            )

    return Kind(
        path="models",
        of=BaseModelSpec,
        body=rest.BaseModelPut,
        shown=rest.DeclaredModel,
        read=Role.VIEWER,
        write=Role.OPERATOR,
        count_max=BASE_MODELS_MAX,
        value=value,
        shape=shape,
        guard=guard,
    )


def adapters(known: KnownDesired, served: Callable[[], Collection[str]]) -> Kind[AdapterSpec]:
    """`/adapters`. `served` are the base models of all engines seen."""

    def value(name: str, body: Any, _: AdapterSpec | None) -> AdapterSpec:
        assert isinstance(body, rest.AdapterPut)
        return body.to_spec(name)

    def shape(stored: Stored[AdapterSpec], staleness_ms: float) -> rest.Adapter:
        base_model = stored.value.base_model
        return rest.Adapter.of(
            stored,
            base_model_known=base_model in served() or known.has(BaseModelSpec, base_model),
            staleness_ms=staleness_ms,
        )

    return Kind(
        path="adapters",
        of=AdapterSpec,
        body=rest.AdapterPut,
        shown=rest.Adapter,
        read=Role.VIEWER,
        write=Role.OPERATOR,
        count_max=ADAPTERS_MAX,
        value=value,
        shape=shape,
    )


def profiles() -> Kind[Profile]:
    """`/profiles`, with those that are built in."""

    def value(name: str, body: Any, _: Profile | None) -> Profile:
        assert isinstance(body, rest.ProfilePut)
        return body.to_profile(name)

    def shape(stored: Stored[Profile], staleness_ms: float) -> rest.ProfileView:
        return rest.ProfileView.of(
            stored, built_in=stored.value.name in BUILT_IN, staleness_ms=staleness_ms
        )

    return Kind(
        path="profiles",
        of=Profile,
        body=rest.ProfilePut,
        shown=rest.ProfileView,
        read=Role.VIEWER,
        write=Role.ADMIN,
        count_max=PROFILES_MAX,
        value=value,
        shape=shape,
        built_in=tuple(Stored(profile, 0) for profile in BUILT_IN.values()),
    )
