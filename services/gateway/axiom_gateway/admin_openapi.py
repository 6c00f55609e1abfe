"""The admin API's own description: OpenAPI 3.1, at `/admin/v1/openapi.json`.

FastAPI tells what the routes say. Added here is what holds for all of them: the role that each
needs, every error that it may answer with, the headers of the grammar, an example of everything.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from axiom_common.model.access import Role
from axiom_common.model.ids import NAME_MAX, NAME_PATTERN, TOKEN_PATTERN
from axiom_common.wire import examples, headers, rest
from axiom_gateway.admin_access import Needs, role_of
from axiom_gateway.admin_idempotency import KEY_PATTERN, remembers
from axiom_gateway.admin_lists import list_fields
from axiom_gateway.admin_problems import BODY, CODES, METHOD, REQUEST

ROLE = "x-role"
"""Of an operation: the least role that it needs."""
ABOUT = f"""Reads and writes what people declare of a LoRA fleet; tells what a gateway sees of it.

Lists take `filter` (`FIELD`, one of `{" ".join(rest.FILTER_OPS)}`, and a value, without blanks;
all must hold), `sort` (`FIELD` or `-FIELD`), `limit` and `cursor`. To change what exists takes
`If-Match` with the ETag that was seen. With `dryRun=true` all is checked and nothing written. A
write with an `Idempotency-Key` is done once, however often it is sent. Errors are problems (RFC
9457)."""
_READ = (400, 401, 403, 404, 405, 500, 503)
_WRITE = (*_READ, 408, 409, 412, 413, 415, 422, 428)
_OBJECT_EXAMPLES = {"name": "acme/sql.v2", "node": "node-1", "engine": "node-1.a"}
_PARAMETERS: dict[str, Any] = _OBJECT_EXAMPLES | {
    "decision_id": "5f3a-1c",
    "limit": 100,
    "dryRun": True,
    headers.IF_MATCH: '"1030"',
    headers.IF_NONE_MATCH: "*",
}
_PATTERNS = {
    "name": {"pattern": f"^{NAME_PATTERN}$", "maxLength": NAME_MAX},
    "node": {"pattern": f"^{TOKEN_PATTERN}$"},
    "engine": {"pattern": rf"^{TOKEN_PATTERN}\.{TOKEN_PATTERN}$"},
}
"""Of what names stand for in paths and elsewhere."""
_TEXT = {"type": "string"}
_IDEMPOTENCY_KEY = {
    "name": headers.IDEMPOTENCY_KEY,
    "in": "header",
    "required": False,
    "description": "The same write sent again with it is done once, and answered alike.",
    "schema": {"type": "string", "pattern": KEY_PATTERN},
    "example": "5a3c8f0e-apply-1",
}
_REPLAYED = {
    "description": "`true`: the answer that the write was given the first time.",
    "schema": {"type": "string", "enum": ["true"]},
}
_ETAG = {"description": "The version, for If-Match.", "schema": _TEXT, "example": '"1030"'}
_OUTCOME = {
    "description": "What was done.",
    "schema": {"type": "string", "enum": ["created", "updated", "unchanged"]},
}
_WITHOUT = {
    "description": "Of keys: gateways that may be at work, cut off, and did not confirm it.",
    "schema": _TEXT,
    "example": "gateway-2, gateway-3",
}
_ERROR_HEADERS: dict[int, dict[str, Any]] = {
    401: {headers.WWW_AUTHENTICATE: {"schema": _TEXT, "example": 'Bearer realm="axiom"'}},
    405: {headers.ALLOW: {"schema": _TEXT, "example": "GET, PUT"}},
    429: {headers.RETRY_AFTER: {"schema": {"type": "integer"}, "example": 2}},
    503: {headers.RETRY_AFTER: {"schema": {"type": "integer"}, "example": 2}},
}
_ERROR_PATHS = {
    400: "rank",
    401: headers.AUTHORIZATION,
    403: headers.AUTHORIZATION,
    404: "name",
    405: METHOD,
    408: BODY,
    409: "name",
    412: headers.IF_MATCH,
    413: BODY,
    415: headers.CONTENT_TYPE,
    422: headers.IDEMPOTENCY_KEY,
    428: headers.IF_MATCH,
    429: REQUEST,
    500: REQUEST,
    503: REQUEST,
}


def add_openapi(app: FastAPI) -> None:
    """Add the route; what it tells is made when it is first asked for, beside all else."""

    @app.router.get(
        "/openapi.json", dependencies=[Depends(Needs(Role.VIEWER))], include_in_schema=False
    )
    async def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = await asyncio.to_thread(openapi_of, app)
        return app.openapi_schema


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """The description of all routes."""
    told = get_openapi(
        title=app.title,
        version=app.version,
        description=ABOUT,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    told["servers"] = [{"url": "/admin/v1"}]
    schemas = told["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = rest.Problem.model_json_schema()
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in route.methods or ():
                operation = told["paths"][route.path_format][method.lower()]
                _complete(operation, route, method, schemas)
    for name, example in _shape_examples():
        if name in schemas:
            schemas[name]["examples"] = [example]
    return told


def _complete(
    operation: dict[str, Any], route: APIRoute, method: str, schemas: dict[str, Any]
) -> None:
    """Add to an operation what FastAPI can't know."""
    role = role_of(route)
    assert role is not None
    operation[ROLE] = role.value
    operation["description"] = f"Needs the role `{role}`."
    operation["operationId"] = _operation_id(route, method)
    parameters = operation.setdefault("parameters", [])
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        # Bodies that handlers read by themselves bring the shapes within them along.
        schemas |= content["schema"].pop("$defs", {})
        content["example"] = _body_example(content["schema"], media_type)
    model = route.response_model
    answer = model if isinstance(model, type) and issubclass(model, BaseModel) else None
    if answer is not None and issubclass(answer, rest.Page):
        _describe_list(parameters, answer.model_fields["items"].annotation.__args__[0])  # type: ignore[union-attr]
    for parameter in parameters:
        name = parameter["name"]
        many = parameter["schema"].get("type") == "array"
        one = parameter["schema"]["items"] if many else parameter["schema"]
        one |= _PATTERNS.get(name, {})
        if name in _PARAMETERS:
            example = _PARAMETERS[name]
            parameter["example"] = [example] if many else example
    is_write = remembers(role, method)
    if is_write:
        parameters.append(_IDEMPOTENCY_KEY)
    _describe_answers(operation["responses"], method, answer, is_write=is_write)
    errors = _WRITE if method != "GET" else _READ
    for status in (*errors, *((429,) if route.path == "/watch" else ())):
        operation["responses"][str(status)] = _error(status)


def _describe_list(parameters: list[dict[str, Any]], shape: type[BaseModel]) -> None:
    """Say by which fields one may filter and sort."""
    filters, sorts = list_fields(shape, inside=True), list_fields(shape, inside=False)
    by_name = {parameter["name"]: parameter for parameter in parameters}
    fields = "|".join(re.escape(one).replace(r"\*", "[A-Za-z0-9_-]+") for one in filters)
    by_name["filter"]["schema"]["items"]["pattern"] = f"^({fields})({'|'.join(rest.FILTER_OPS)})"
    by_name["filter"]["description"] = f"By {', '.join(filters)}."
    by_name["filter"]["example"] = [f"{_first_text(shape)}~1"]
    sort = "|".join(re.escape(one).replace(r"\*", "[A-Za-z0-9_-]+") for one in sorts)
    by_name["sort"]["schema"] = {"type": "string", "pattern": f"^-?({sort})$"}
    by_name["sort"]["example"] = f"-{sorts[0]}"


def _first_text(shape: type[BaseModel]) -> str:
    return next(name for name, field in shape.model_fields.items() if field.annotation is str)


def _describe_answers(
    responses: dict[str, Any], method: str, answer: type[BaseModel] | None, *, is_write: bool
) -> None:
    """Headers and examples of good answers."""
    for status in [status for status in responses if not status.startswith("2")]:
        del responses[status]
    versioned = answer is not None and "version" in answer.model_fields
    is_object = answer is not None and issubclass(answer, rest.DeclaredShape)
    for response in responses.values():
        found = response.setdefault("headers", {})
        if versioned:
            found[headers.ETAG] = _ETAG
        if is_object and is_write:
            found[headers.OUTCOME] = _OUTCOME
        if is_write:
            found[headers.REPLAYED] = _REPLAYED
        if method == "DELETE":
            found[headers.WITHOUT] = _WITHOUT
    if is_object and method == "GET":
        responses["304"] = {"description": "Not Modified", "headers": {headers.ETAG: _ETAG}}


def _error(status: int) -> dict[str, Any]:
    title = HTTPStatus(status).phrase
    codes = CODES[status]
    example = {
        "type": f"urn:axiom:problem:{codes[0]}",
        "title": title,
        "status": status,
        "detail": "what is wrong, in words",
        "code": codes[0],
        "path": _ERROR_PATHS[status],
    }
    return {
        "description": f"{title}: {', '.join(codes)}",
        "headers": _ERROR_HEADERS.get(status, {}),
        "content": {
            rest.PROBLEM_MEDIA_TYPE: {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "example": example,
            }
        },
    }


def _body_example(schema: dict[str, Any], media_type: str) -> dict[str, Any]:
    """A whole body, or the patch of one field."""
    shapes = (shape for shape in examples.REST if type(shape).__name__ == schema["title"])
    example = next((shape.model_dump(mode="json") for shape in shapes), {})
    if media_type == rest.MERGE_PATCH_MEDIA_TYPE:
        return dict(list(example.items())[-1:])
    return example


def _shape_examples() -> Iterator[tuple[str, Any]]:
    """Name of a shape, as FastAPI calls it, and an example of it."""
    for shape in examples.REST:
        told = shape.model_dump(mode="json")
        yield type(shape).__name__, told
        yield f"Page_{type(shape).__name__}_", {"items": [told], "next": None, "staleness_ms": 0.0}


def _operation_id(route: APIRoute, method: str) -> str:
    parts = re.findall(r"[A-Za-z]+", route.path_format)
    return "-".join([method.lower(), *parts])
