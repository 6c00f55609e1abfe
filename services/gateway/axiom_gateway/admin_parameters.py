"""Parameters. Of the query: those that a route has, and no others.

A parameter that nobody reads would be a wish unheard: `dryrun=true`, say, before a write.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, get_origin

from fastapi import Request
from fastapi.routing import APIRoute
from pydantic import BaseModel

from axiom_common.errors import InvalidInputError, NotFoundError
from axiom_common.model.ids import EngineId, engine_id
from axiom_gateway.admin_problems import PATH_MAX

_MANY = (list, tuple)


def engine_in_path(text: str) -> EngineId:
    """The id of an engine in a path; NotFoundError where no engine can have it."""
    node, _, engine = text.partition(".")
    try:
        return engine_id(node, engine)
    except InvalidInputError as error:
        shown = text[:PATH_MAX]
        raise NotFoundError(f"no engine {shown!r} is known: one is NODE.ENGINE") from error


async def only_known_parameters(request: Request) -> None:
    """A dependency of every route: InvalidInputError for a parameter that the route does not have,
    or has once and is given twice."""
    asked = request.query_params
    if not asked:
        return
    known = _parameters(request.scope["route"])
    for name in asked:
        if name not in known:
            shown = name[:PATH_MAX]
            raise InvalidInputError(f"there is no parameter {shown!r} here", path=shown)
        if not known[name] and len(asked.getlist(name)) > 1:
            raise InvalidInputError(f"{name} is there twice", path=name)


def _parameters(route: APIRoute) -> Mapping[str, bool]:
    """Name -> whether it may be there many times."""
    found: dict[str, bool] = {}
    of_dependencies = (one.query_params for one in route.dependant.dependencies)
    for field in chain(route.dependant.query_params, *of_dependencies):
        kind: Any = field.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            parts = kind.model_fields.items()
            found |= {name: get_origin(part.annotation) in _MANY for name, part in parts}
        else:
            found[field.alias] = get_origin(kind) in _MANY
    return found
