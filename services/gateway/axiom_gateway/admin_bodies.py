"""The bodies that the admin API takes: bounded in size and time, JSON of one shape."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from axiom_common.errors import InvalidInputError
from axiom_common.wire import headers, rest
from axiom_gateway.admin_problems import (
    BODY,
    TooLargeError,
    TooSlowError,
    UnsupportedError,
    first_of,
)

BODY_TIMEOUT_S = 10.0
REF = "#/components/schemas/{model}"
_JSON = "application/json"
_SAYS_NOTHING = ("", "application/octet-stream")
"""The latter means bytes of whatever kind (RFC 9110, 8.3), and some clients name it by default."""
_OBJECT = TypeAdapter(dict[str, Any])
_S = TypeVar("_S", bound=BaseModel)


async def parsed_body(request: Request, shape: type[_S]) -> _S:
    """The body as JSON of this shape; UnsupportedError when it says that it is no JSON."""
    try:
        return shape.model_validate_json(await _json_of(request))
    except ValidationError as error:
        raise first_of(error.errors(include_url=False)) from error


async def parsed_if_any(request: Request, shape: type[_S]) -> _S:
    """The same of a shape whose fields may all be left out; so may the body."""
    try:
        return shape.model_validate_json(await _json_of(request) or b"{}")
    except ValidationError as error:
        raise first_of(error.errors(include_url=False)) from error


async def patch_in(request: Request) -> dict[str, Any]:
    """The body as a merge patch: a JSON object. UnsupportedError when it says that it is another
    kind of patch."""
    try:
        return _OBJECT.validate_json(await _json_of(request, rest.MERGE_PATCH_MEDIA_TYPE))
    except ValidationError as error:
        raise first_of(error.errors(include_url=False)) from error


async def _json_of(request: Request, *more: str) -> bytes:
    """The whole body, which says of itself that it is JSON, or one of `more`, or nothing. Where
    there is none it does not matter: clients name a type there too."""
    body = await bytes_of(request)
    kind = request.headers.get(headers.CONTENT_TYPE, "").partition(";")[0].strip().lower()
    kinds = (*more, _JSON)
    if body and kind not in (*_SAYS_NOTHING, *kinds):
        raise UnsupportedError(
            f"{request.method} takes {' or '.join(kinds)}", path=headers.CONTENT_TYPE
        )
    return body


async def bytes_of(request: Request) -> bytes:
    """The whole body; TooLargeError, TooSlowError, or InvalidInputError where it ends early."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > rest.BODY_BYTES_MAX:
                    raise TooLargeError(f"the body is above {rest.BODY_BYTES_MAX} bytes", path=BODY)
    except TimeoutError as error:
        raise TooSlowError(f"no whole body within {BODY_TIMEOUT_S:g} s", path=BODY) from error
    except ClientDisconnect as error:
        raise InvalidInputError("the body ends too early", path=BODY) from error
    return bytes(body)


def takes(shape: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI part of a body that a handler reads by itself."""
    schema = shape.model_json_schema(ref_template=REF)
    return _request_body({_JSON: {"schema": schema}})


def may_take(shape: type[BaseModel]) -> dict[str, Any]:
    """The same of a body that may be left out."""
    told = takes(shape)
    told["requestBody"]["required"] = False
    return told


def takes_patch(shape: type[BaseModel]) -> dict[str, Any]:
    """The same of a merge patch on a body of this shape: each field may be left out, or be null."""
    schema = shape.model_json_schema(ref_template=REF)
    fields = {
        name: {"anyOf": [field, {"type": "null"}]} for name, field in schema["properties"].items()
    }
    patch = {name: part for name, part in schema.items() if name != "required"}
    patch["properties"] = fields
    return _request_body({rest.MERGE_PATCH_MEDIA_TYPE: {"schema": patch}})


def _request_body(content: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": content}}
