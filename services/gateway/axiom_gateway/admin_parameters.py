"""Query parameters: those that the API's description tells of, and no others.

A parameter that nobody reads would be a wish unheard: `dryrun=true`, say, before a write.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request

from axiom_common.errors import InvalidInputError
from axiom_gateway.admin_problems import PATH_MAX


def only_known_parameters(request: Request) -> None:
    """A dependency of every route: InvalidInputError for a parameter that the route does not have,
    or has once and is given twice."""
    asked = request.query_params
    if not asked:
        return
    known = _parameters(request)
    for name in asked:
        if name not in known:
            shown = name[:PATH_MAX]
            raise InvalidInputError(f"there is no parameter {shown!r} here", path=shown)
        if known[name].get("type") != "array" and len(asked.getlist(name)) > 1:
            raise InvalidInputError(f"{name} is there twice", path=name)


def _parameters(request: Request) -> dict[str, Any]:
    """Name -> schema of those of the route that the request is for."""
    path = request.app.openapi_schema["paths"].get(request.scope["route"].path_format, {})
    found = path.get(request.method.lower(), {}).get("parameters", ())
    return {one["name"]: one["schema"] for one in found if one["in"] == "query"}
