"""The settings that this gateway runs with, over REST. Secrets are in none of them: users and
passwords of URLs are cut out, files are named and not shown."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends

from axiom_common.model.access import Role
from axiom_common.runtime.settings import without_users
from axiom_common.wire.views import ConfigView
from axiom_gateway.admin_access import Needs
from axiom_gateway.settings import GatewaySettings


def shown_settings(settings: GatewaySettings) -> dict[str, Any]:
    """All settings by name, for anybody to see."""
    told = settings.model_dump(mode="json")
    return {
        name: without_users(value) if isinstance(value, str) else value
        for name, value in told.items()
    }


def add_config(router: APIRouter, settings: GatewaySettings) -> None:
    """Add the route."""
    view = ConfigView(gateway=settings.gateway, settings=shown_settings(settings))

    @router.get("/config", dependencies=[Depends(Needs(Role.VIEWER))], tags=["config"])
    async def config() -> ConfigView:
        return view
